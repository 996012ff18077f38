"""The output: a Parquet file, written whole or not at all, some megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from deepspark_ops.stores.writing import written_whole

ROWS_WRITTEN = 8_192
BYTES_WRITTEN = 32 * 2**20
"""A row group is written once it has as many rows or bytes."""


class ParquetOutput:
    """Takes rows and writes them as row groups. One thread at a time."""

    def __init__(self, writer: pa.parquet.ParquetWriter, schema: pa.Schema) -> None:
        """Write to ``writer``, which whoever opened it closes."""
        self._writer = writer
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._n_rows = self._n_bytes = 0

    def add(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows: per column of the schema one value a row, None for nothing.

        A list column takes numpy vectors; an Arrow array is taken as it is.
        """
        arrays = [
            values if isinstance(values := columns[field.name], pa.Array) else pa.array(values, field.type)
            for field in self._schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._held.append(batch)
        self._n_rows += batch.num_rows
        self._n_bytes += batch.nbytes
        if self._n_rows >= ROWS_WRITTEN or self._n_bytes >= BYTES_WRITTEN:
            self.flush()

    def write(self, table: pa.Table) -> None:
        """Write a table of the schema as a row group of its own."""
        self.flush()
        self._writer.write_table(table.cast(self._schema))

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
            self._held.clear()
            self._n_rows = self._n_bytes = 0


@contextmanager
def parquet_output(path: Path, schema: pa.Schema) -> Iterator[ParquetOutput]:
    """Open ``path`` for rows of ``schema``; it is there after the block, and only if nothing went wrong in it."""
    with written_whole(path) as temporary, pa.parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        output = ParquetOutput(writer, schema)
        yield output
        output.flush()
