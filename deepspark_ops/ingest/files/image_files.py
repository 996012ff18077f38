"""Image files in folders: how they are read, and what of them a digest sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError

IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jp2 .png .bmp .dib .webp .tif .tiff .ppm .pgm .pbm .pnm .gif .avif .exr .hdr".split()
)
"""Of the kinds of files that OpenCV reads; a name of another kind is no image of a folder."""


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


def is_image_name(name: str) -> bool:
    """Return whether a file's name ends as those of images do."""
    return (
        os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
    )  # a million names a second; pathlib takes ten times as long


def file_stamp(path: Path) -> bytes:
    """Return size and time of change, for a digest: reading all images would take as long as ingesting them."""
    try:
        stat = path.stat()
    except OSError:
        return b"missing;"
    return f"{stat.st_size} {stat.st_mtime_ns};".encode()
