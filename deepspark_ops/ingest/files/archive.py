"""Lists and images inside a tar or zip: ``ARCHIVE::MEMBER``.

A task reads only the bytes of the members in the task's share.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

import numpy as np

from caffe_import.file_access.regular_file import open_regular
from caffe_import.file_access.text_file import decode_text
from deepspark_ops.config.ingest import ARCHIVE_MARK
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.file_spans import SpanReader
from deepspark_ops.ingest.files.zip_archive import NO_MEMBER, NO_SUCH_MEMBER, ZIP_MARKS, ZipReader, zip_members
from deepspark_ops.ingest.records import Positions, RecordError, RecordReader
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path
from deepspark_ops.stores.writing import written_whole

_COPY_BYTES = 1 << 20
_LOOK_BYTES = 1 << 20
"""The header and a row of a table with 100,000 columns."""
_GIB = 1 << 30
_MAX_HEADER_BYTES = 1 << 20
"""Limit of a long name or a table of attributes in a tar; real headers have some kilobytes."""
_TAR_MARK = slice(257, 262)
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)
"""Errors of decompressors; an OSError of gzip and bz2 has no errno, an OSError of the disk has an errno."""
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


@dataclass(frozen=True)
class UnpackLimits:
    """Limits on sizes after unpacking: a packed megabyte of zeros may fill memory or a disk.

    Attributes:
        member_mib: Limit of a file in a zip; the file is unpacked into memory.
        unpacked_gib: Limit of a compressed tar or file; the content is unpacked to the disk.
    """

    member_mib: int = 256
    unpacked_gib: int = 64


_limits: ContextVar[UnpackLimits] = ContextVar("unpack_limits", default=UnpackLimits())  # noqa: B039 - frozen


@contextmanager
def unpack_limits(limits: UnpackLimits) -> Iterator[None]:
    """Use ``limits`` inside the block."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


def current_limits() -> UnpackLimits:
    """Return the limits of the block around the caller."""
    return _limits.get()


def split_member(path: DataPath) -> tuple[DataPath, str | None]:
    """Return the file and the member of ``ARCHIVE::MEMBER``; the member of a plain path is None.

    Example:
        >>> split_member(Path("data/cifar.tar.gz::train.txt"))
        (PosixPath('data/cifar.tar.gz'), 'train.txt')
    """
    archive, mark, member = str(path.keys if isinstance(path, StorePath) else path).partition(ARCHIVE_MARK)
    file = StorePath(path.scheme, PurePosixPath(archive)) if isinstance(path, StorePath) else data_path(archive)
    return file, posixpath.normpath(member) if mark else None


def decompressed(path: DataPath, work: DataPath) -> DataPath:
    """Return ``path``, or a decompressed copy in ``work`` of a compressed file (gzip, bzip2, xz).

    An existing copy of the same run is used again. The caller removes ``work``.

    Raises:
        DataError: The compressed file is damaged.
    """
    opener = _opener(path)
    if opener is None:
        return path
    copy = work / f"{path.name}.decompressed"
    if copy.exists():
        return copy
    with _opened(path, opener) as packed, written_whole(copy) as temporary, temporary.open("wb") as plain:
        _unpack(packed, plain, path)
    return copy


@contextmanager
def _opened(path: DataPath, opener: Callable[..., Any] | None) -> Iterator[IO[bytes]]:
    """Open a file for its content after decompression.

    Raises:
        DataError: The compressed file is damaged.
    """
    try:
        with open_regular(path) as file, (opener or nullcontext)(file) as content:
            yield content
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk
        msg = f"{path}: damaged or cut short: {error.args[0] if error.args else error}; fetch it again"
        raise DataError(msg) from error


def _unpack(packed: IO[bytes], plain: IO[bytes], path: DataPath) -> None:
    most_gib, n_bytes = current_limits().unpacked_gib, 0
    while block := packed.read(_COPY_BYTES):
        n_bytes += len(block)
        if n_bytes > most_gib * _GIB:
            msg = (
                f"{path}: has more than {most_gib} GiB when it is unpacked; give unpacked_gib={most_gib + 1} or more if"
                " that is right and the disk has room"
            )
            raise DataError(msg)
        plain.write(block)


def read_start(path: DataPath, n_bytes: int = _LOOK_BYTES) -> bytes:
    """Return the first bytes of a file's content, after decompression.

    Raises:
        DataError: The compressed file is damaged.
    """
    with opened_content(path) as content:
        return content.read(n_bytes)


@contextmanager
def opened_content(path: DataPath) -> Iterator[IO[bytes]]:
    """Open a file for its content after decompression.

    Raises:
        DataError: The compressed file is damaged.
    """
    with _opened(path, _opener(path)) as content:
        yield content


def is_compressed(path: DataPath) -> bool:
    """Return whether a file is compressed (gzip, bzip2, xz)."""
    return _opener(path) is not None


def _opener(path: DataPath) -> Callable[..., Any] | None:
    with open_regular(path) as handle:
        start = handle.read(6)
    return next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)


@dataclass(frozen=True)
class Archive:
    """A tar or zip: names and locations of the files.

    Attributes:
        path: As the user named it, for messages.
        members: Normalized name -> location of each regular file.
        missing: In the place of the location of a file that is not there.
        reader_at: Returns the reader of the files at (n, k) locations.
    """

    path: Path
    members: Mapping[str, tuple[int, ...]]
    missing: tuple[int, ...]
    reader_at: Callable[[Positions], RecordReader]

    def reader(self, names: Sequence[str]) -> RecordReader:
        """Return the reader of the members ``names``, in the order of ``names``; a missing member is a bad record."""
        locations = [self.members.get(posixpath.normpath(name), self.missing) for name in names]
        return self.reader_at(np.array(locations, np.int64).reshape(len(names), len(self.missing)))


def read_member_text(archive: Archive, member: str) -> str:
    """Return a member as text.

    Raises:
        ConfigError: No such member; the message names the text files there are.
        DataError: The member is damaged.
    """
    if member not in archive.members:
        texts = sorted(name for name in archive.members if name.endswith(".txt"))
        text_files = f"its text files: {', '.join(texts[:8])}" if texts else "it holds no .txt file"
        msg = f'{archive.path}: no member "{member}"; {text_files}'
        raise ConfigError(msg)
    with archive.reader([member]).opened() as read:
        try:
            content = read(0)
        except RecordError as error:
            msg = f'{archive.path}: member "{member}": {error}'
            raise DataError(msg) from error
    assert isinstance(content, bytes)
    return decode_text(content)


def is_archive(start: bytes) -> bool:
    """Return whether a file with the first bytes ``start`` is a tar or a zip."""
    return start[_TAR_MARK] == b"ustar" or start.startswith(ZIP_MARKS)


@lru_cache(maxsize=2)
def open_archive(path: Path, work: Path) -> Archive:
    """List a tar or zip, decompressing a tar into ``work`` first where needed.

    Listing 60,000 members takes a second, and an archive often holds train list, test list and class names. The listing
    is therefore cached by ``path`` and ``work``, the scratch folder of an ingestion.

    Raises:
        DataError: Not a tar or zip, or a damaged one.
    """
    with open_regular(path) as file:
        if file.read(4) in ZIP_MARKS:
            missing = (0, 0, NO_MEMBER, 0)
            return Archive(
                path, zip_members(path), missing, lambda at: ZipReader(at, path, current_limits().member_mib)
            )
    tar = decompressed(path, work)
    with local_copy(tar) as local, open_regular(local) as file:
        return Archive(path, _tar_spans(file, path), (0, 0, -1), lambda at: SpanReader(at, (tar,), NO_SUCH_MEMBER))


def _tar_spans(file: BinaryIO, path: Path) -> dict[str, tuple[int, int, int]]:
    """Return name -> location, as ``SpanReader`` takes it, of each file of a tar; ``path`` is for messages."""
    n_bytes = os.fstat(file.fileno()).st_size
    try:
        with tarfile.open(fileobj=_HeaderFile(file), mode="r:") as handle:  # type: ignore[call-overload]
            spans = {posixpath.normpath(m.name): (0, m.offset_data, m.size) for m in _files(handle, n_bytes)}
            end = handle.offset
    except RecursionError as error:
        msg = f"{path}: not a readable tar: its headers refer to further ones without end; fetch it again"
        raise DataError(msg) from error
    except (tarfile.TarError, ValueError) as error:
        msg = f"{path}: not a readable tar: {error}; fetch it again"
        raise DataError(msg) from error
    # A block of zeros; tarfile takes a file that stops anywhere else for complete.
    if os.pread(file.fileno(), tarfile.BLOCKSIZE, end) != bytes(tarfile.BLOCKSIZE):
        msg = f"{path}: the tar is cut short; fetch it again"
        raise DataError(msg)
    return spans


class _HeaderFile:
    """A file with a limit on bytes per read: tarfile asks for the number of bytes in a header, which may be damaged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, n_bytes: int) -> bytes:
        if not 0 <= n_bytes <= _MAX_HEADER_BYTES:
            msg = f"a header of {n_bytes:,} bytes, allowed: at most {_MAX_HEADER_BYTES:,}"
            raise tarfile.ReadError(msg)
        return self._file.read(n_bytes)


def _files(handle: tarfile.TarFile, n_bytes: int) -> Iterator[tarfile.TarInfo]:
    """Yield the files of a tar of ``n_bytes`` and check each size: tarfile accepts any size, even a negative size."""
    padded = n_bytes + tarfile.BLOCKSIZE
    for member in handle:
        is_stored = member.isreg() and not member.issparse()
        end = member.offset_data + (member.size if is_stored else 0)
        if member.size < 0 or end > n_bytes or not end <= handle.offset <= padded:
            msg = (
                f"member {member.name[:200]!r} has {member.size:,} bytes by its header, at place {member.offset_data:,}"
                f" of {n_bytes:,}"
            )
            raise tarfile.ReadError(msg)
        if is_stored:
            yield member
        # tarfile keeps every member in memory; a million members take a gigabyte.
        handle.members.clear()  # type: ignore[attr-defined]
