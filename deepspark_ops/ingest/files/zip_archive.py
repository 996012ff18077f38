"""Members of a zip, stored or deflated: a member is read without unpacking the zip, and checked by CRC-32."""

from __future__ import annotations

import errno
import os
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from caffe_import.file_access.regular_file import open_regular, regular_path
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.records import LocatedRecords, ReadRecord, RecordError
from deepspark_ops.stores.staging import local_copy

ZIP_MARKS = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of a zip: of a member, or, in an empty zip, of the directory's end."""
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 1
_DAMAGE = (zipfile.BadZipFile, struct.error, EOFError, IndexError, NotImplementedError, ValueError, OverflowError)
"""Errors of zipfile for damaged directories; zipfile also raises an OSError for an impossible offset."""
NO_SUCH_MEMBER = "no such file in the archive"
NO_MEMBER, _IS_ENCRYPTED, _IS_OUTSIDE = -1, -2, -3
"""In the place of a method."""
_REFUSED = {
    NO_MEMBER: NO_SUCH_MEMBER,
    _IS_ENCRYPTED: "the file is encrypted; unpack the archive",
    _IS_OUTSIDE: "damaged in the archive: its place there lies outside of the archive",
}
_MIB = 2**20


@dataclass(frozen=True)
class ZipReader(LocatedRecords):
    """Reads members by number.

    Attributes:
        path: The zip.
        locations: (n, 4): offset of the member's header, bytes packed, method, CRC-32. ``NO_MEMBER`` and others
            in the place of the method mark members that cannot be read.
        member_mib: Most MiB of a member when it is unpacked.
    """

    path: Path
    member_mib: int

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with local_copy(self.path) as path, open_regular(path) as handle:
            yield lambda index: self._read(handle, index)

    def _read(self, handle: IO[bytes], index: int) -> bytes:
        offset, n_packed, method, crc = self.locations[index].tolist()
        if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RecordError(_REFUSED.get(method, f"packed by method {method}; allowed: stored, deflate"))
        if n_packed > self.member_mib * _MIB:
            raise self._too_large(n_packed)
        header = os.pread(handle.fileno(), _LOCAL_HEADER_BYTES, offset)
        # The lengths of name and extra field differ between the directory and the member's own header.
        start = offset + _LOCAL_HEADER_BYTES + sum(struct.unpack("<HH", header[26:30])) if len(header) == 30 else offset
        content = os.pread(handle.fileno(), n_packed, start)
        try:
            content = self._inflated(content) if method == zipfile.ZIP_DEFLATED else content
        except zlib.error as error:
            msg = f"damaged in the archive: {error}"
            raise RecordError(msg) from error
        if zlib.crc32(content) != crc:
            msg = "damaged in the archive: its checksum differs"
            raise RecordError(msg)
        return content

    def _inflated(self, packed: bytes) -> bytes:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        content = inflater.decompress(packed, self.member_mib * _MIB)
        if inflater.unconsumed_tail and inflater.decompress(inflater.unconsumed_tail, 1):
            raise self._too_large(len(content) + 1)
        if not inflater.eof:
            msg = "damaged in the archive: its packed bytes are incomplete"
            raise RecordError(msg)
        return content

    def _too_large(self, n_bytes: int) -> RecordError:
        """Return the refusal of a member with at least ``n_bytes``."""
        least = -(-n_bytes // _MIB)
        return RecordError(
            f"has more than {self.member_mib} MiB when it is unpacked; give member_mib={least} or more, and the tasks"
            " memory for it"
        )


def zip_members(path: Path) -> dict[str, tuple[int, int, int, int]]:
    """Return normalized name -> offset, packed bytes, method, CRC-32 of each file.

    Raises:
        DataError: Not a zip, or a damaged one.
    """
    try:
        with local_copy(path) as local, zipfile.ZipFile(regular_path(local)) as handle:
            n_bytes = local.stat().st_size
            return {
                posixpath.normpath(info.filename): _member_location(info, n_bytes)
                for info in handle.infolist()
                if info.filename and not info.is_dir()
            }
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        msg = f"{path}: not a readable zip: {error}; fetch it again"
        raise DataError(msg) from error


def _member_location(info: zipfile.ZipInfo, n_bytes: int) -> tuple[int, int, int, int]:
    if info.header_offset < 0 or info.compress_size < 0 or info.header_offset + info.compress_size > n_bytes:
        return 0, 0, _IS_OUTSIDE, 0
    method = _IS_ENCRYPTED if info.flag_bits & _ENCRYPTED else info.compress_type
    return info.header_offset, info.compress_size, method, info.CRC
