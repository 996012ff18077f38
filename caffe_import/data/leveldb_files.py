"""LevelDB's files, read only: manifest, tables, write-ahead log. Reads databases without a concurrent writer.

Written from LevelDB's format documents (doc/log_format.md, doc/table_format.md, doc/impl.md). The CRC-32C of every
block and log record is checked.

This reader exists because LevelDB cannot read without writing. Tried with plyvel 1.5.1 (LevelDB 1.22): opening a
database replaces its MANIFEST, CURRENT and log, and adds LOCK and LOG. A second process and a read-only file system are
refused. An iterator over a table with one flipped bit ends at once without an error, even with paranoid_checks and
verify_checksums.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from caffe_import.errors import DataSourceError
from caffe_import.file_access.regular_file import open_regular, regular_bytes, regular_text
from caffe_import.files.crc32c import masked_crc32c

_LOG_BLOCK_BYTES = 32_768
_LOG_HEADER_BYTES = 7
_TABLE_FOOTER_BYTES = 48
_TABLE_MAGIC = 0xDB4775248B80FB57
_SNAPPY = 1
_VALUE = 1
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
_CURRENT_BYTES = 4096
_LOG_BYTES = 2**32
"""LevelDB begins another log after 4 MiB; a manifest grows for as long as the database is open."""
_REMEDY = "; the file is damaged: copy it again, or make the database again"


@dataclass(frozen=True)
class TableEntry:
    """A key of a table: the value is the ``index``-th entry of the block at ``(offset, size)``."""

    user_key: bytes
    sequence: int
    is_value: bool
    offset: int
    size: int
    index: int


@dataclass(frozen=True)
class LogEntry:
    """One write of a log: ``value`` is None for a deletion."""

    user_key: bytes
    sequence: int
    value: bytes | None


class Table:
    """One sorted table (.ldb or .sst), memory-mapped. Not thread-safe.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            DataSourceError: Missing, or no table.
        """
        self.path = path
        try:
            with open_regular(path) as handle:
                self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            msg = f"{path}: table of the LevelDB is missing or empty"
            raise DataSourceError(msg) from error
        if len(self._map) < _TABLE_FOOTER_BYTES or struct.unpack("<Q", self._map[-8:])[0] != _TABLE_MAGIC:
            self.close()
            msg = f"{path}: not a LevelDB table, or cut short"
            raise DataSourceError(msg)
        self._cached: tuple[int, list[tuple[bytes, bytes]]] | None = None

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def entries(self) -> Iterator[TableEntry]:
        """Yield every key in order; reads every block once and checks it.

        Raises:
            DataSourceError: A block is damaged.
        """
        index = self._index_place()
        self._verify(*index)
        for _, encoded_handle in self._block(*index):
            offset, size, _ = _handle(encoded_handle, 0)
            self._verify(offset, size)
            for i, (key, _) in enumerate(self._block(offset, size)):
                tail = int.from_bytes(key[-8:], "little")
                yield TableEntry(key[:-8], tail >> 8, (tail & 0xFF) == _VALUE, offset, size, i)

    def value(self, entry: TableEntry) -> bytes:
        """Return an entry's value; the block last read is kept."""
        if self._cached is None or self._cached[0] != entry.offset:
            self._cached = (entry.offset, self._block(entry.offset, entry.size))
        return self._cached[1][entry.index][1]

    def _index_place(self) -> tuple[int, int]:
        footer = self._map[-_TABLE_FOOTER_BYTES:]
        try:
            _, _, at = _handle(footer, 0)
            offset, size, _ = _handle(footer, at)
        except IndexError as error:
            msg = f"{self.path}: damaged footer, the last {_TABLE_FOOTER_BYTES} bytes"
            raise DataSourceError(msg) from error
        return offset, size

    def _verify(self, offset: int, size: int) -> None:
        end = offset + size + 1  # with the byte that says how it is compressed
        if self._map[end : end + 4] != _checksum(self._map[offset:end]):
            msg = f"{self.path}: the block at byte {offset:,} ({size:,} bytes) does not fit its checksum{_REMEDY}"
            raise DataSourceError(msg)

    def _block(self, offset: int, size: int) -> list[tuple[bytes, bytes]]:
        """Return a block's (key, value); keys are stored as what differs from the key before."""
        try:
            block: bytes = self._map[offset : offset + size]
            if self._map[offset + size] == _SNAPPY:
                import pyarrow  # of the extra leveldb: only compressed databases need it

                length, _ = _varint(block, 0)
                block = pyarrow.decompress(block, decompressed_size=length, codec="snappy", asbytes=True)
            return list(_block_entries(block))
        except (IndexError, struct.error, OSError, ValueError) as error:
            msg = f"{self.path}: damaged block at byte {offset:,}"
            raise DataSourceError(msg) from error


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (n_restarts,) = struct.unpack("<I", block[-4:])
    stop, at, key = len(block) - 4 - 4 * n_restarts, 0, b""
    while at < stop:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def live_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the tables and logs that the manifest says are current.

    Raises:
        DataSourceError: No LevelDB there, or a damaged manifest.
    """
    try:
        current = regular_text(folder / "CURRENT", encoding="ascii", max_bytes=_CURRENT_BYTES).strip()
        if not re.fullmatch(r"MANIFEST-\d+", current):  # no word of another file is shown
            msg = f"{folder}: no LevelDB here: CURRENT names no manifest"
            raise DataSourceError(msg)
        manifest = folder / current
        records = list(_log_records(manifest))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{folder}: no LevelDB here: {error}"
        raise DataSourceError(msg) from error
    tables: set[int] = set()
    first_log = 0
    for record in records:
        first_log = _apply_edit(record, tables, first_log, manifest)
    logs = sorted(path for path in folder.glob("*.log") if path.stem.isdigit() and int(path.stem) >= first_log)
    return [_table_path(folder, number) for number in sorted(tables)], logs


def log_entries(path: Path) -> Iterator[LogEntry]:
    """Yield the writes of one log, oldest first.

    Raises:
        DataSourceError: The log is damaged, or was cut short.
    """
    for record in _log_records(path):
        try:
            sequence, count = struct.unpack("<QI", record[:12])
            at = 12
            for i in range(count):
                kind = record[at]
                key, at = _text(record, at + 1)
                value = None
                if kind == _VALUE:
                    value, at = _text(record, at)
                yield LogEntry(key, sequence + i, value)
        except (IndexError, struct.error) as error:
            msg = f"{path}: damaged log of the LevelDB"
            raise DataSourceError(msg) from error


def _table_path(folder: Path, number: int) -> Path:
    old = folder / f"{number:06d}.sst"
    return old if old.exists() else folder / f"{number:06d}.ldb"


def _apply_edit(record: bytes, tables: set[int], first_log: int, manifest: Path) -> int:
    """Apply one VersionEdit to the set of live tables; return the first live log's number."""
    at = 0
    try:
        while at < len(record):
            tag, at = _varint(record, at)
            if tag == 1:  # comparator
                _, at = _text(record, at)
            elif tag in (2, 3, 4, 9):  # log, next file, last sequence, previous log
                number, at = _varint(record, at)
                first_log = number if tag == 2 else first_log
            elif tag == 5:  # compaction pointer
                _, at = _varint(record, at)
                _, at = _text(record, at)
            elif tag in (6, 7):  # deleted file, new file
                at = _apply_file(record, at, tables, is_new=tag == 7)
            else:
                msg = f"{manifest}: tag {tag} is unknown; this reader knows LevelDB up to 1.23"
                raise DataSourceError(msg)
    except IndexError as error:
        msg = f"{manifest}: damaged manifest of the LevelDB"
        raise DataSourceError(msg) from error
    return first_log


def _apply_file(record: bytes, at: int, tables: set[int], *, is_new: bool) -> int:
    _, at = _varint(record, at)  # level
    number, at = _varint(record, at)
    if not is_new:
        tables.discard(number)
        return at
    tables.add(number)
    _, at = _varint(record, at)  # size
    for _ in range(2):  # smallest and largest key
        _, at = _text(record, at)
    return at


def _log_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a log file; a record may be cut into fragments over blocks of 32 KiB.

    Raises:
        DataSourceError: A fragment does not fit its checksum, or the log ends inside a record: unlike LevelDB, which
            then drops the record, since a dataset with fewer records than it had is worse than an error.
    """
    parts, expected = b"", (_FULL, _FIRST)
    at = 0
    for at, kind, fragment in _log_fragments(path):
        if kind not in expected:
            msg = f"{path}: the log's fragment at byte {at:,} does not continue the one before{_REMEDY}"
            raise DataSourceError(msg)
        parts += fragment
        expected = (_MIDDLE, _LAST)
        if kind in (_FULL, _LAST):
            yield parts
            parts, expected = b"", (_FULL, _FIRST)
    if parts:
        msg = f"{path}: the log ends inside the record at byte {at:,}{_REMEDY}"
        raise DataSourceError(msg)


def _log_fragments(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, kind, data) of each fragment in a log."""
    content = regular_bytes(path, max_bytes=_LOG_BYTES)
    at = 0
    while at < len(content):
        n_block_bytes = _LOG_BLOCK_BYTES - at % _LOG_BLOCK_BYTES
        header = content[at : at + _LOG_HEADER_BYTES]
        if n_block_bytes < _LOG_HEADER_BYTES or not any(
            header
        ):  # no room for a header, or the rest of a preallocated block
            at += n_block_bytes
            continue
        length = int.from_bytes(header[4:6], "little")
        end = at + _LOG_HEADER_BYTES + length
        checked = content[at + 6 : end]  # the kind and the data
        if length > n_block_bytes - _LOG_HEADER_BYTES or len(checked) != length + 1 or header[:4] != _checksum(checked):
            msg = f"{path}: the log's record at byte {at:,} is cut short or does not fit its checksum{_REMEDY}"
            raise DataSourceError(msg)
        yield at, checked[0], checked[1:]
        at = end


def _checksum(data: bytes) -> bytes:
    return masked_crc32c(data).to_bytes(4, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _varint(data, at)
    if at + length > len(data):
        raise IndexError(at)
    return data[at : at + length], at + length


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at
