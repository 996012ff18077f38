"""Image lists: ``path label`` lines, as Caffe's convert_imageset reads them, in a folder or inside a tar."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caffe_import.data.image_source import BadLine, ListedImage, parse_image_list
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.archive import archive_reader, open_archive, split_member
from deepspark_ops.ingest.records import (
    Positions,
    ReadRecord,
    RecordError,
    RecordReader,
    Rejection,
    SourceIndex,
)
from deepspark_ops.ingest.sources.format import Format, Look
from deepspark_ops.shards.manifest import sha256_of_file

_TAR_MARK = slice(257, 262)


@dataclass(frozen=True)
class FolderReader:
    """Reads image files of a folder by number."""

    folder: Path
    paths: tuple[str, ...]

    def subset(self, positions: Positions) -> FolderReader:
        """See ``RecordReader``."""
        return FolderReader(self.folder, tuple(self.paths[i] for i in positions))

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        yield self._read

    def _read(self, index: int) -> bytes:
        try:
            return (self.folder / self.paths[index]).read_bytes()
        except OSError as error:
            msg = f"{error.strerror or error}: {self.folder / self.paths[index]}"
            raise RecordError(msg) from error


def index_image_list(source: Path, root_folder: Path | None, work: Path) -> SourceIndex:
    """Read a list; images are looked at later, by the tasks.

    Args:
        source: The list, or ``ARCHIVE::LIST``.
        root_folder: What the list's paths are relative to; default: the list's own folder. Inside an archive it is
            a folder of the archive.
        work: Scratch for a decompressed archive.

    Raises:
        ConfigError: The archive has no such member.
        DataError: The list has no usable line, or the archive is damaged.
    """
    path, member = split_member(source)
    if member is None:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        images, rejected = _split_lines(text, source)
        folder = path.parent if root_folder is None else root_folder
        return _index(images, rejected, FolderReader(folder, tuple(image.path for image in images)))
    archive = open_archive(path, work)
    images, rejected = _split_lines(archive.read_text(member), source)
    prefix = posixpath.dirname(member) if root_folder is None else str(root_folder)
    return _index(images, rejected, archive_reader(archive, [posixpath.join(prefix, image.path) for image in images]))


def digest_image_list(source: Path, root_folder: Path | None) -> str:
    """Return a digest that changes with the list and with the images it names.

    An archive is digested whole. For images in a folder size and time of change are digested, not content: reading
    them all would take as long as ingesting them.
    """
    path, member = split_member(source)
    if member is not None:
        return sha256_of_file(path)
    digest = hashlib.sha256(path.read_bytes())
    folder = path.parent if root_folder is None else root_folder
    for entry in parse_image_list(path.read_text(encoding="utf-8", errors="surrogateescape")):
        if isinstance(entry, ListedImage):
            digest.update(_stamp(folder / entry.path))
    return digest.hexdigest()


def _stamp(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError:
        return b"missing;"
    return f"{stat.st_size} {stat.st_mtime_ns};".encode()


def _split_lines(text: str, source: Path) -> tuple[list[ListedImage], list[Rejection]]:
    images, rejected = [], []
    for entry in parse_image_list(text):
        if isinstance(entry, BadLine):
            reason = f'line {entry.number} is not "path label"'
            rejected.append(Rejection(entry.number - 1, entry.text[:200], None, reason))
        else:
            images.append(entry)
    if not images:
        found = f'{len(rejected):,} lines, none of them "path label"' if rejected else "no line"
        msg = f"{source}: the image list is empty: {found}"
        raise DataError(msg)
    return images, rejected


def _index(images: list[ListedImage], rejected: list[Rejection], reader: RecordReader) -> SourceIndex:
    return SourceIndex(
        labels=np.array([image.label for image in images], np.int64),
        names=[image.path for image in images],
        reader=reader,
        # convert_imageset reads every image as colour by default, so a gray one gets three channels.
        decode_color=True,
        rejected=tuple(rejected),
    )


def _looks_like(look: Look) -> bool:
    return look.member is not None or not (b"\0" in look.start or _is_tar(look))


def _resembles(look: Look) -> str | None:
    if look.kind == "folder":
        lists = sorted(look.path.glob("*.txt"))
        return f"is a folder of no known format; did you mean the list {lists[0]}?" if lists else None
    if look.kind == "file" and _is_tar(look):
        return f"is an archive; name the image list in it, e.g. {look.source}::train.txt"
    return None


def _is_tar(look: Look) -> bool:
    return look.start[_TAR_MARK] == b"ustar"


FORMAT = Format(
    kinds=frozenset({"file", "member"}),
    looks_like=_looks_like,
    digest=lambda config, source: digest_image_list(source, config.root_folder),
    index=lambda config, source, work: index_image_list(source, config.root_folder, work),
    resembles=_resembles,
)
