"""A LevelDB of Caffe's tools, whose default was LEVELDB.

LevelDB itself would write to the files, so ingestion parses the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from caffe_import.data.leveldb_files import Table, TableEntry, live_files
from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import Image
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.datum_records import DatumIndex, image_of_datum, opened_database
from deepspark_ops.ingest.files.image_files import digest_of_files
from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError, SourceIndex
from deepspark_ops.ingest.sources.format import Format
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath


@dataclass(frozen=True)
class LeveldbReader:
    """Reads records by number; compressed images stay compressed.

    Attributes:
        tables: The database's tables.
        locations: (n, 4) int64: number of the table, offset and size of the block, index in the block.
        values: Per record: the bytes of a record in the log; None for a record in a table.
    """

    tables: tuple[DataPath, ...]
    locations: Positions
    values: tuple[bytes | None, ...]

    def subset(self, positions: Positions) -> LeveldbReader:
        """See ``RecordReader``."""
        return LeveldbReader(self.tables, self.locations[positions], tuple(self.values[i] for i in positions))

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with ExitStack() as stack:
            tables: dict[int, Table] = {}
            yield lambda index: self._read(tables, stack, index)

    def _read(self, tables: dict[int, Table], stack: ExitStack, index: int) -> Image | bytes:
        record = self.values[index]
        try:
            if record is None:
                number, offset, size, block_index = self.locations[index].tolist()
                if number not in tables:
                    table = Table(stack.enter_context(local_copy(self.tables[number])))
                    stack.callback(table.close)
                    tables[number] = table
                record = tables[number].value(TableEntry(b"", 0, True, offset, size, block_index))
            return image_of_datum(record, where="record")
        except DataSourceError as error:
            raise RecordError(str(error)) from error


def index_leveldb(folder: DataPath) -> SourceIndex:
    """Read keys and labels in a pass over the whole database.

    Raises:
        DataError: The database is empty or damaged, or no record is a Datum.
    """
    index, locations = DatumIndex(folder), []
    values: list[bytes | None] = []
    tables: dict[str, int] = {}
    with opened_database(folder, LeveldbSource) as database:
        for key, location, record in database.records():
            if not index.add(key, record):
                continue
            if location is None:
                locations.append((0, 0, 0, 0))
            else:
                path, entry = location
                locations.append((tables.setdefault(path.name, len(tables)), entry.offset, entry.size, entry.index))
            values.append(record if location is None else None)
    files = tuple(folder / name for name in tables)
    return index.result(lambda _keys: LeveldbReader(files, np.array(locations, np.int64), tuple(values)))


def digest_leveldb(folder: DataPath) -> str:
    """Return a digest of the tables and logs in use.

    Raises:
        DataError: The database is damaged.
    """
    with local_copy(folder) as local:
        try:
            tables, logs = live_files(local)
        except DataSourceError as error:
            raise DataError(str(error)) from error
    return digest_of_files(folder / path.name for path in (*tables, *logs))


FORMAT = Format(
    kinds=frozenset({"folder"}),
    looks_like=lambda look: (look.path / "CURRENT").is_file() and any(look.path.glob("MANIFEST-*")),
    digest=lambda _config, source: digest_leveldb(source),
    index=lambda _config, source, _work: index_leveldb(source),
)
