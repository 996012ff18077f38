"""A LevelDB that Caffe's tools made: LEVELDB was their default. Only read; LevelDB itself would write there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caffe_import.data.leveldb_files import Table, TableEntry, live_files
from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import Image, parse_datum
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.datum_records import image_of_datum, names_of_keys
from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError, SourceIndex
from deepspark_ops.ingest.sources.format import Format
from deepspark_ops.shards.manifest import sha256_of_file


@dataclass(frozen=True)
class LeveldbReader:
    """Reads records by number; compressed images stay compressed.

    Attributes:
        tables: The database's tables.
        places: (n, 4) int64: number of the table, offset and size of the block, place in it.
        values: One per record: its bytes if they are in the log and not in a table, else None.
    """

    tables: tuple[Path, ...]
    places: Positions
    values: tuple[bytes | None, ...]

    def subset(self, positions: Positions) -> LeveldbReader:
        """See ``RecordReader``."""
        return LeveldbReader(self.tables, self.places[positions], tuple(self.values[i] for i in positions))

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        tables: dict[int, Table] = {}
        try:
            yield lambda index: self._read(tables, index)
        finally:
            for table in tables.values():
                table.close()

    def _read(self, tables: dict[int, Table], index: int) -> Image | bytes:
        record = self.values[index]
        try:
            if record is None:
                number, offset, size, place = self.places[index].tolist()
                if number not in tables:
                    tables[number] = Table(self.tables[number])
                record = tables[number].value(TableEntry(b"", 0, True, offset, size, place))
            return image_of_datum(record, where="record")
        except DataSourceError as error:
            raise RecordError(str(error)) from error


def index_leveldb(folder: Path) -> SourceIndex:
    """Read keys and labels, which reads the whole database once.

    Raises:
        DataError: The database is empty or damaged.
    """
    source = LeveldbSource(folder)
    keys, labels, places = [], [], []
    values: list[bytes | None] = []
    tables: dict[Path, int] = {}
    try:
        for key, place, record in source.records():
            keys.append(key)
            labels.append(parse_datum(record, where=f"{folder}: record {key!r}").label)
            if place is None:
                places.append((0, 0, 0, 0))
            else:
                path, entry = place
                places.append((tables.setdefault(path, len(tables)), entry.offset, entry.size, entry.index))
            values.append(record if place is None else None)
    except DataSourceError as error:
        raise DataError(str(error)) from error
    finally:
        source.close()
    return SourceIndex(
        labels=np.array(labels, np.int64),
        names=names_of_keys(keys),
        reader=LeveldbReader(tuple(tables), np.array(places, np.int64), tuple(values)),
    )


def digest_leveldb(folder: Path) -> str:
    """Return a digest of the tables and logs in use.

    Raises:
        DataError: The database is damaged.
    """
    try:
        tables, logs = live_files(folder)
    except DataSourceError as error:
        raise DataError(str(error)) from error
    return hashlib.sha256("".join(sha256_of_file(path) for path in (*tables, *logs)).encode()).hexdigest()


FORMAT = Format(
    kinds=frozenset({"folder"}),
    looks_like=lambda look: (look.path / "CURRENT").is_file() and any(look.path.glob("MANIFEST-*")),
    digest=lambda _config, source: digest_leveldb(source),
    index=lambda _config, source, _work: index_leveldb(source),
)
