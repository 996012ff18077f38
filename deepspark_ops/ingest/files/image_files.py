"""Image files in folders: readers, stamps and digests."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.allowed_roots import check_listed_paths
from caffe_import.file_access.regular_file import IMAGE_BYTES, regular_bytes, regular_handle, require_size
from deepspark_ops.config.ingest import FileStamp
from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError
from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.stores.store_path import DataPath, StorePath, joined, objects_below

IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jp2 .png .bmp .dib .webp .tif .tiff .ppm .pgm .pbm .pnm .gif .avif .exr .hdr".split()
)
"""Suffixes of the formats of OpenCV; a file with another suffix is no image of a folder."""
_READ_AHEAD = 32
"""Parallel requests to a store: a request takes tens of milliseconds, mostly of waiting."""
_ASKED_ONE_BY_ONE = 200
"""For more objects, the folder is listed: an answer of the store lists a thousand objects."""

_ADDRESS = "://"

MISSING = b"missing;"
"""``file_stamp`` of a missing file."""


@dataclass(frozen=True)
class FolderReader:
    """Reads image files of a folder by number."""

    folder: DataPath
    paths: tuple[str, ...]

    def subset(self, positions: Positions) -> FolderReader:
        """See ``RecordReader``."""
        return FolderReader(self.folder, tuple(self.paths[i] for i in positions))

    def stamps(self) -> npt.NDArray[np.uint64]:
        """Return a number for each file, (n,), of folder, size and time of change; 0 for a missing file."""
        folder = str(self.folder).encode("utf-8", "surrogateescape")
        stamps = np.zeros(len(self.paths), np.uint64)
        for i, stamp in enumerate(file_stamps(self.folder, self.paths)):
            if stamp != MISSING:
                stamps[i] = int.from_bytes(blake2b(folder + b"\0" + stamp, digest_size=8).digest(), "big") or 1
        return stamps

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        if not self.paths or not isinstance(joined(self.folder, self.paths[0]), StorePath):
            folder = f"{self.folder}/"

            def read(index: int) -> bytes:
                path = self.paths[index]
                if _ADDRESS in path:
                    return self._read(index)
                return _read_file(path if path.startswith("/") else folder + path)

            yield read
            return
        with ThreadPoolExecutor(_READ_AHEAD) as pool:
            ahead = _ReadAhead(self, pool)
            try:
                yield ahead.read
            finally:
                ahead.stop()

    def _read(self, index: int) -> bytes:
        path = joined(self.folder, self.paths[index])
        try:
            return regular_bytes(path, max_bytes=IMAGE_BYTES)
        except OSError as error:
            msg = f"{error.strerror or error}: {path}"
            raise RecordError(msg) from error


def listed_reader(folder: DataPath, paths: tuple[str, ...], *, named_by: str) -> FolderReader:
    """Check the images of a list against the process' allowed roots, and return the images' reader.

    Raises:
        ForbiddenPathError: A path lies outside of the allowed folders.
    """
    if not isinstance(folder, StorePath):
        local = (
            paths if not any(_ADDRESS in path for path in paths) else [path for path in paths if _ADDRESS not in path]
        )
        check_listed_paths(os.fspath(folder), local, named_by=named_by)
    return FolderReader(folder, paths)


def _read_file(path: str) -> bytes:
    """Return a local file's content by four system calls; Python's file objects need six."""
    try:
        handle, size = regular_handle(path)
        try:
            require_size(size, IMAGE_BYTES, path)
            content = os.pread(handle, size, 0)  # in one piece: to join parts would copy a large file once more
        finally:
            os.close(handle)
        # A file of /proc says that it is empty, a large one comes in parts.
        return content if content and len(content) == size else regular_bytes(path, max_bytes=IMAGE_BYTES)
    except OSError as error:
        msg = f"{error.strerror or error}: {path}"
        raise RecordError(msg) from error


class _ReadAhead:
    """Reads the next records while a record is processed; any order works, and ascending order is fast."""

    def __init__(self, reader: FolderReader, pool: ThreadPoolExecutor) -> None:
        self._reader = reader
        self._pool = pool
        self._next: deque[tuple[int, Future[bytes]]] = deque()

    def read(self, index: int) -> bytes:
        """Return record ``index``; RecordError if it cannot be read."""
        while self._next and self._next[0][0] != index:
            self._next.popleft()[1].cancel()
        first = self._next[-1][0] + 1 if self._next else index
        for at in range(first, min(index + _READ_AHEAD, len(self._reader.paths))):
            self._next.append((at, self._pool.submit(self._reader._read, at)))
        return self._next.popleft()[1].result()

    def stop(self) -> None:
        """Cancel the outstanding reads."""
        for _, future in self._next:
            future.cancel()


def is_image_name(name: str) -> bool:
    """Return whether a file's name has a suffix of an image."""
    return (
        os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
    )  # a million names a second; pathlib takes ten times as long


def visible_files(folder: DataPath) -> Iterator[str]:
    """Yield the relative paths of the files below a folder; each folder's files are in order of names.

    Hidden files, and files in hidden folders, are omitted. A link to a folder is followed only directly in ``folder``:
    a circle of links would be endless. Memory holds only the names of a folder and of the folders above.
    """
    if isinstance(folder, StorePath):
        names = (name for name in objects_below(folder) if not any(map(_is_hidden, name.split("/"))))
        # A driver's files have the order that the driver's own walk gives: tasks take images by number.
        yield from sorted(names, key=lambda name: name.split("/")) if folder.is_on_driver else names
        return
    yield from _visible_files(os.fspath(folder), "", follows_links=True)


def _visible_files(folder: str, prefix: str, *, follows_links: bool) -> Iterator[str]:
    with os.scandir(folder) as entries:
        names = sorted(
            (entry.name, entry.is_dir(follow_symlinks=follows_links)) for entry in entries if not _is_hidden(entry.name)
        )
    for name, is_folder in names:
        if is_folder:
            yield from _visible_files(f"{folder}/{name}", f"{prefix}{name}/", follows_links=False)
        else:
            yield prefix + name


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def file_stamp(path: DataPath, by: FileStamp = "time") -> bytes:
    """Return size and time of change, or a digest of the content; a digest reads as much as an ingestion."""
    try:
        if by == "digest":
            return f"{source_digest(path)};".encode()
        stat = path.stat()
    except FileNotFoundError:
        return MISSING
    except OSError:
        if isinstance(path, StorePath):  # no answer or a refusal of the store is no property of the data
            raise
        return MISSING
    return f"{stat.st_size} {stat.st_mtime_ns};".encode()


def _local_stamp(path: str) -> bytes:
    try:
        status = os.stat(path)
    except OSError:
        return MISSING
    return f"{status.st_size} {status.st_mtime_ns};".encode()


def file_stamps(folder: DataPath, names: Sequence[str], by: FileStamp = "time") -> Iterator[bytes]:
    """Yield ``file_stamp`` of files of a folder; names are relative, absolute, or addresses in a store."""
    if by == "digest":
        yield from (file_stamp(joined(folder, name), by) for name in names)
        return
    if not isinstance(folder, StorePath):
        root = os.fspath(folder)
        for name in names:  # a path object for each would take three times as long as the question
            yield file_stamp(joined(folder, name)) if "://" in name else _local_stamp(os.path.join(root, name))
        return
    if len(names) <= _ASKED_ONE_BY_ONE:
        yield from (file_stamp(joined(folder, name)) for name in names)
        return
    entries = objects_below(folder)
    for name in names:
        entry = entries.get(os.path.normpath(name).lstrip("/"))
        is_below = _ADDRESS not in name and ".." not in name.split("/")
        yield (
            f"{entry.stamp};".encode()
            if entry is not None
            else MISSING
            if is_below
            else file_stamp(joined(folder, name))
        )


def source_digest(path: DataPath) -> str:
    """Return a hexadecimal digest of a file's content.

    A local file is read completely. For an object in a store, the digest is of the store's tag, without a read.

    Raises:
        OSError: The file is not there or cannot be read.
    """
    if isinstance(path, StorePath):
        return hashlib.sha256(path.version().encode()).hexdigest()
    return sha256_of_file(path)


def digest_of_files(paths: Iterable[DataPath]) -> str:
    """Return a digest of the ``source_digest`` of several files, in their order.

    Raises:
        OSError: A file is not there or cannot be read.
    """
    return hashlib.sha256("".join(map(source_digest, paths)).encode()).hexdigest()
