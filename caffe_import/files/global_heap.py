"""Checks the global heap of an HDF5 file before the library, which does not check and may never end, reads the heap.

The global heap holds texts of variable length, references to regions and the parts of virtual data sets, in
collections: signature ``GCOL``, size, then objects, each with its size. The library (1.14) goes from object to object
by the size. An object 0, the free space, of size 0 keeps the library at the same address for ever, inside a call that
no signal ends; other sizes lead out of the collection. Source: HDF5 File Format Specification 3.0, III.E;
``H5HGcache.c``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_handle

SIGNATURE: Final = b"GCOL"
_END_OF_FILES: Final = 2**63
_MAX_OBJECTS: Final = 2**16
"""An object's number has 16 bits."""


class CheckedFile:
    """A Python file for h5py; reads damaged collections of the global heap as zeros.

    HDF5 then reports a wrong signature. HDF5 reads each collection separately and from the start, because HDF5 does not
    join reads of Python files. The object has its own position: a forked process reads undisturbed.

    Attributes:
        length_bytes: Bytes of a size in the file.
        gives_heap: Whether the library may read the heap; False at first.
        was_asked: Whether the library has asked for the heap.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: It cannot be read.
        """
        self._file = regular_handle(path)[0]
        self._at = 0
        self.length_bytes = 8
        self.gives_heap = self.was_asked = False

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place."""
        self._at = offset if whence == os.SEEK_SET else os.lseek(self._file, offset, whence)
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes; fewer at the end."""
        content = bytearray(size)
        return bytes(content[: self.readinto(content)])

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill a buffer and return the number of bytes; bytes beyond the end are 0, as in the library's reads."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (n := self._read_part(view[filled:], self._at + filled)):
            filled += n
        view[filled:] = bytes(len(view) - filled)
        if bytes(view[: len(SIGNATURE)]) == SIGNATURE:
            self.was_asked = True
            if not (self.gives_heap and self._is_whole(self._at)):
                view[:] = bytes(len(view))
        self._at += filled
        return filled

    def _read_part(self, view: memoryview, start: int) -> int:
        return os.preadv(self._file, [view], start) if start < _END_OF_FILES else 0

    def _is_whole(self, start: int) -> bool:
        size_at = len(SIGNATURE) + 4
        head = os.pread(self._file, size_at + self.length_bytes, start)
        size = int.from_bytes(head[size_at:], "little")
        if not len(head) <= size <= os.fstat(self._file).st_size - start:
            return False
        return is_whole_collection(os.pread(self._file, size, start), self.length_bytes)


def is_whole_collection(content: bytes, length_bytes: int = 8) -> bool:
    """Return whether the objects of a collection follow each other up to the collection's end.

    Args:
        content: The whole collection, of the length that it declares.
        length_bytes: Bytes of a size in the file.
    """
    header = _aligned(8 + length_bytes)
    at = header
    for _ in range(_MAX_OBJECTS):
        if at + header > len(content):  # a rest too small for an object is free
            return at <= len(content)
        number = int.from_bytes(content[at : at + 2], "little")
        size = int.from_bytes(content[at + 8 : at + 8 + length_bytes], "little")
        if not number and size < header:
            return False
        at += header + _aligned(size) if number else size
    return False


def _aligned(size: int) -> int:
    return -(-size // 8) * 8
