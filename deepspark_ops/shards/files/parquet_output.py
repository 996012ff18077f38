"""The output: a Parquet file, written whole or not at all, some megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from deepspark_ops.stores.store_path import DataPath
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

        A list column takes numpy vectors, or all of them as one array; an Arrow array is taken as it is.
        """
        arrays = [arrow_column(columns[field.name], field.type) for field in self._schema]
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


def arrow_column(values: Any, of_type: pa.DataType) -> pa.Array:
    """Return one value a row as a column: a sequence, numbers (n,), vectors (n, k), or an Arrow array as it is."""
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return vectors(values).cast(of_type)
    try:
        return pa.array(values, of_type)
    except UnicodeEncodeError:  # names of files in another encoding: their bytes that are no UTF-8 become "?"
        texts = [None if text is None else str(text).encode("utf-8", "replace").decode() for text in values]
        return pa.array(texts, of_type)


def vectors(values: npt.NDArray[Any]) -> pa.Array:
    """Return the rows of numbers (n, k) as a column of lists; Arrow takes each row of a list of arrays by itself.

    Example:
        >>> vectors(np.array([[1, 2], [3, 4]])).to_pylist()
        [[1, 2], [3, 4]]
    """
    n, k = values.shape
    offsets = np.arange(0, n * k + 1, k, dtype=np.int32) if k else np.zeros(n + 1, np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(values).reshape(-1)))


@contextmanager
def parquet_output(path: DataPath, schema: pa.Schema) -> Iterator[ParquetOutput]:
    """Open ``path`` for rows of ``schema``; it is there after the block, and only if nothing went wrong in it."""
    with written_whole(path) as temporary, pa.parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        output = ParquetOutput(writer, schema)
        yield output
        output.flush()
