"""An LMDB of Caffe's tools: ingestion shuffles, splits and resizes the records, and writes shards anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import lmdb

from caffe_import.data.lmdb_environment import acquire_environment, release_environment
from caffe_import.data.lmdb_pages import check_pages
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import Image
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.files.datum_records import DatumIndex, image_of_datum, opened_database
from deepspark_ops.ingest.files.image_files import source_digest
from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError, SourceIndex
from deepspark_ops.ingest.sources.format import Format
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

READ_LABELS_UP_TO = 100_000
"""Labels are inside the records, so an inspection of a larger database reads the first records alone."""


@dataclass(frozen=True)
class LmdbReader:
    """Reads records of one LMDB by number; compressed images stay compressed."""

    folder: DataPath
    keys: tuple[bytes, ...]

    def subset(self, positions: Positions) -> LmdbReader:
        """See ``RecordReader``."""
        return LmdbReader(self.folder, tuple(self.keys[i] for i in positions))

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with local_copy(self.folder) as folder:
            environment = acquire_environment(folder)
            try:
                with environment.begin(buffers=True) as transaction:
                    yield lambda index: self._read(transaction, index)
            finally:
                release_environment(folder)

    def _read(self, transaction: lmdb.Transaction, index: int) -> Image | bytes:
        try:
            record = transaction.get(self.keys[index]) or b""
            return image_of_datum(record, where="record")
        except (lmdb.Error, DataSourceError) as error:
            raise RecordError(str(error)) from error


def _is_large(folder: DataPath) -> bool:
    with opened_database(folder, LmdbSource) as database:
        return len(database) > READ_LABELS_UP_TO


def index_caffe_lmdb(folder: DataPath, n_records: int | None = None) -> SourceIndex:
    """Read keys and labels of the first ``n_records``; by default of the whole database.

    Raises:
        DataError: The database is missing, empty or damaged, or no record is a Datum.
    """
    index = DatumIndex(folder)
    with opened_database(folder, LmdbSource) as database, database.records(0, n_records or len(database)) as records:
        for key, record in records:
            index.add(key, record)
    return index.result(lambda keys: LmdbReader(folder, keys))


def _index_start(_config: IngestConfig, source: DataPath, _work: DataPath, n_records: int | None) -> SourceIndex:
    with local_copy(source) as local:
        check_pages([local])  # a damaged page would kill this process
    return index_caffe_lmdb(source, n_records)


FORMAT = Format(
    kinds=frozenset({"folder"}),
    looks_like=lambda look: (look.path / "data.mdb").is_file(),
    digest=lambda _config, source: source_digest(source / "data.mdb"),
    index=lambda _config, source, _work: index_caffe_lmdb(source),
    is_large=_is_large,
    index_start=_index_start,
    resembles=lambda look: (
        f"is a file of an LMDB; give its folder, {look.path.parent}" if look.path.name == "data.mdb" else None
    ),
)
