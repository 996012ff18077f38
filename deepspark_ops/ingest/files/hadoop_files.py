"""Hadoop's SequenceFile, version 6: header, single records or blocks of records, and Writables.

Source: Apache Hadoop, org.apache.hadoop.io.SequenceFile and WritableUtils. No package of PyPI reads the format
without a JVM. Spark's reader yields no locations, and a task needs the location of a record to read the record alone.
"""

from __future__ import annotations

import bz2
import mmap
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from caffe_import.file_access.regular_file import open_regular
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

MAGIC = b"SEQ"
_VERSION = 6
_SYNC_BYTES = 16
_ESCAPE = -1
_CODECS: dict[str, Callable[[Any], bytes]] = {
    "DefaultCodec": lambda data: zlib.decompress(data, zlib.MAX_WBITS | 32),
    "DeflateCodec": lambda data: zlib.decompress(data, zlib.MAX_WBITS | 32),
    "GzipCodec": lambda data: zlib.decompress(data, zlib.MAX_WBITS | 32),
    "BZip2Codec": bz2.decompress,
}


@dataclass(frozen=True)
class ValueLocation:
    """Location of a value; in a file of compressed blocks, location of the value's block.

    Attributes:
        offset: Bytes from the file's start.
        size: In bytes, as stored.
        index: Index in the block; -1 for a value outside of blocks.
    """

    offset: int
    size: int
    index: int = -1


@dataclass(frozen=True)
class SequenceHeader:
    """Fields of a file's header.

    Attributes:
        key_class: Short name of the keys' Writable.
        value_class: Of the values'.
        codec: Short name of the codec; "" if nothing is compressed.
        has_blocks: Whether records are compressed in blocks.
        sync: The 16 bytes of the marks where reading may begin.
        n_bytes: The header's length.
    """

    key_class: str
    value_class: str
    codec: str
    has_blocks: bool
    sync: bytes
    n_bytes: int


def read_header(path: DataPath) -> SequenceHeader:
    """Return a file's header.

    Raises:
        DataError: No SequenceFile of version 6, or a codec that is not read here.
    """
    with open_regular(path) as handle:
        start = handle.read(65_536)
    if start[:3] != MAGIC or start[3:4] != bytes([_VERSION]):
        msg = f"{path}: not a SequenceFile of version {_VERSION}; it starts with {start[:4]!r}"
        raise DataError(msg)
    try:
        key_class, at = read_text(start, 4)
        value_class, at = read_text(start, at)
        is_compressed, has_blocks = start[at] != 0, start[at + 1] != 0
        codec, at = read_text(start, at + 2) if is_compressed else ("", at + 2)
        (n_pairs,) = struct.unpack_from(">i", start, at)
        at += 4
        for _ in range(2 * n_pairs):
            _, at = read_text(start, at)
        sync = start[at : at + _SYNC_BYTES]
    except (IndexError, struct.error) as error:
        msg = f"{path}: damaged header of a SequenceFile"
        raise DataError(msg) from error
    short = codec.rpartition(".")[2]
    if short and short not in _CODECS:
        msg = (
            f"{path}: compressed by {codec}, which is not read here; allowed: none, {', '.join(_CODECS)}; write it anew"
        )
        raise DataError(msg)
    key, value = (name.rpartition(".")[2] for name in (key_class, value_class))
    return SequenceHeader(key, value, short, has_blocks, sync, at + _SYNC_BYTES)


def read_records(path: DataPath, header: SequenceHeader) -> Iterator[tuple[ValueLocation, bytes, bytes]]:
    """Yield location, key and value of each record; key and value are the Writables' bytes.

    Raises:
        DataError: The file is damaged or cut short.
    """
    with (
        local_copy(path) as local,
        open_regular(local) as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        at = header.n_bytes
        try:
            while at < len(content):
                (length,) = struct.unpack_from(">i", content, at)
                if length == _ESCAPE:
                    at = _after_sync(content, at + 4, header)
                if length != _ESCAPE:
                    location, key = _record_location(content, at + 4, length)
                    at = location.offset + location.size
                    yield location, key, _unpacked(content[location.offset : at], header)
                elif header.has_blocks:
                    size = _block_size(content, at)
                    for index, (key, value) in enumerate(_block(content[at : at + size], header)):
                        yield ValueLocation(at, size, index), key, value
                    at += size
        except (IndexError, struct.error, zlib.error, OSError, ValueError) as error:
            msg = f"{path}: damaged or cut short near byte {at:,} of the SequenceFile; fetch it again"
            raise DataError(msg) from error


def values_at(content: bytes, header: SequenceHeader, *, is_block: bool) -> list[bytes]:
    """Return the value, or the values of a block, from the bytes at a location.

    Raises:
        RecordError: The bytes are damaged.
    """
    try:
        return [value for _, value in _block(content, header)] if is_block else [_unpacked(content, header)]
    except (IndexError, struct.error, zlib.error, OSError, ValueError) as error:
        msg = f"damaged: {error}"
        raise RecordError(msg) from error


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Return a Text and the offset after the Text."""
    length, at = read_vint(data, at)
    if length < 0 or at + length > len(data):
        raise IndexError(at)
    return data[at : at + length].decode("utf-8", "surrogateescape"), at + length


def read_vint(data: Any, at: int) -> tuple[int, int]:
    """Return Hadoop's integer of variable length and the offset after the integer.

    Example:
        >>> read_vint(bytes([0x8E, 0x01, 0x00]), 0)
        (256, 3)
    """
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    size = -112 - first if first >= -120 else -120 - first
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (~value if first < -120 else value), at + 1 + size


def _after_sync(content: Any, at: int, header: SequenceHeader) -> int:
    if content[at : at + _SYNC_BYTES] != header.sync:
        raise IndexError(at)
    return at + _SYNC_BYTES


def _record_location(content: Any, at: int, length: int) -> tuple[ValueLocation, bytes]:
    """Return the value's location and the key of the record whose key length is at ``at``."""
    (key_length,) = struct.unpack_from(">i", content, at)
    start, end = at + 4 + key_length, at + 4 + length
    if not 0 <= key_length <= length or end > len(content):
        raise IndexError(at)
    return ValueLocation(start, end - start), content[at + 4 : start]


def _unpacked(data: bytes, header: SequenceHeader) -> bytes:
    return _CODECS[header.codec](data) if header.codec else data


def _block_size(content: Any, start: int) -> int:
    _, at = read_vint(content, start)
    for _ in range(4):
        length, at = read_vint(content, at)
        at += length
        if length < 0 or at > len(content):
            raise IndexError(at)
    return at - start


def _block(data: bytes, header: SequenceHeader) -> list[tuple[bytes, bytes]]:
    n_records, at = read_vint(data, 0)
    parts: list[bytes] = []
    for _ in range(4):  # lengths of keys, keys, lengths of values, values
        length, at = read_vint(data, at)
        parts.append(_unpacked(data[at : at + length], header) if length else b"")
        at += length
    keys, values = _pieces(parts[0], parts[1], n_records), _pieces(parts[2], parts[3], n_records)
    return list(zip(keys, values, strict=True))


def _pieces(lengths: bytes, content: bytes, n_pieces: int) -> list[bytes]:
    pieces, at, start = [], 0, 0
    for _ in range(n_pieces):
        length, at = read_vint(lengths, at)
        if length < 0 or start + length > len(content):
            raise IndexError(start)
        pieces.append(content[start : start + length])
        start += length
    return pieces
