"""A LevelDB of Datum records, in key order, read by position. LEVELDB is the default backend of Caffe's Data layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from caffe_import.data.leveldb_files import Table, TableEntry, live_files, log_entries
from caffe_import.data.sample_source import Column, check_range, column_of
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import decode_datum
from caffe_import.net.layer_registry import Shape


class LeveldbSource:
    """Images and labels of one LevelDB folder. Not thread-safe; nothing is locked and nothing written.

    Opening lists every key and so reads the whole database once: meant for the databases of old Caffe examples. For
    training at length, ingest it.

    Attributes:
        is_transformed: True: Caffe's Data layer transforms its images.
    """

    is_transformed = True

    def __init__(self, folder: Path, *, color: bool | None = None, with_labels: bool = True) -> None:
        """Remember where; nothing is opened before the first use. Arguments as ``LmdbSource``."""
        self.folder = folder
        self._color = color
        self._with_labels = with_labels
        self._tables: list[Table] = []
        self._records: list[tuple[bytes, tuple[Table, TableEntry] | bytes]] = []

    def __len__(self) -> int:
        """Return the number of records."""
        self._open()
        return len(self._records)

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return the first record's ``((C, H, W), ())``, or one shape without labels."""
        shape = self.read(0, 1)[0].shape[1:]
        return (shape, ()) if self._with_labels else (shape,)

    def read(self, start: int, count: int) -> list[Column]:
        """Return ``[images (count, C, H, W), labels (count,) int64]``, or the images alone.

        Raises:
            DataSourceError: A record is damaged.
        """
        check_range(start, count, len(self))
        images: list[Column] = []
        labels = np.empty(count, np.int64)
        for i, (key, location) in enumerate(self._records[start : start + count]):
            record = location if isinstance(location, bytes) else location[0].value(location[1])
            image, labels[i] = decode_datum(record, color=self._color, where=f"{self.folder}: record {key!r}")
            images.append(image)
        return [column_of(images), labels] if self._with_labels else [column_of(images)]

    def records(self) -> Iterator[tuple[bytes, tuple[Path, TableEntry] | None, bytes]]:
        """Yield (key, place in a table's file or None for the log, serialized Datum) of every record, in key order.

        Raises:
            DataSourceError: The database is damaged.
        """
        self._open()
        for key, location in self._records:
            if isinstance(location, bytes):
                yield key, None, location
            else:
                yield key, (location[0].path, location[1]), location[0].value(location[1])

    def close(self) -> None:
        """Unmap the tables; the next read opens them again."""
        self._records = []
        for table in self._tables:
            table.close()
        self._tables = []

    def _open(self) -> None:
        if self._records:
            return
        table_paths, logs = live_files(self.folder)
        self._tables = [Table(path) for path in table_paths]
        # Of several writes to one key the highest sequence number counts; a deletion hides what was before.
        newest: dict[bytes, tuple[int, tuple[Table, TableEntry] | bytes | None]] = {}
        for table in self._tables:
            for entry in table.entries():
                _keep(newest, entry.user_key, entry.sequence, (table, entry) if entry.is_value else None)
        for path in logs:
            for write in log_entries(path):
                _keep(newest, write.user_key, write.sequence, write.value)
        self._records = [(key, location) for key, (_, location) in sorted(newest.items()) if location is not None]
        if not self._records:
            self.close()
            msg = f"{self.folder}: the LevelDB has no records"
            raise DataSourceError(msg)


def _keep(
    newest: dict[bytes, tuple[int, tuple[Table, TableEntry] | bytes | None]],
    key: bytes,
    sequence: int,
    location: tuple[Table, TableEntry] | bytes | None,
) -> None:
    newest_record = newest.get(key)
    if newest_record is None or newest_record[0] <= sequence:
        newest[key] = (sequence, location)
