"""The files of a table that our tasks read by themselves: Avro, whose reader Spark does not bring, and Parquet.

Spark hands a row's numbers over one by one, which takes several times as long as reading them. And what comes of one
file alone can be known again when files are added to the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.file_batches import avro_batches, avro_schema, flat
from deepspark_ops.ingest.files.table_files import data_files
from deepspark_ops.ingest.tables.columns import holds_bytes, is_list
from deepspark_ops.stores.staging import kept_copy
from deepspark_ops.stores.store_path import DataPath, name_below

MOST_FILES: Final = 1000
"""Of more files Spark puts many into one task."""
_PART_BYTES: Final = 2**27
"""Of a Parquet file's row groups, uncompressed, that a task reads."""
_BUFFER_BYTES: Final = 2**14
"""Read at a time of each column of a Parquet file: without, Arrow holds a whole row group."""
_OPEN_BYTES: Final = 2**27
"""That a task may hold of the pages of all columns, which are open at the same time."""
_PAGE_BYTES: Final = 160_000
"""Of a column's page: Spark and Arrow put 20,000 rows into one."""
_DICTIONARY_BYTES: Final = 2_600_000
"""Measured of a column with a dictionary, which both end at 1 MiB."""
_FOOTERS_AT_A_TIME: Final = 8
_NUMBERS: Final = (pa.types.is_signed_integer, pa.types.is_uint8, pa.types.is_floating, pa.types.is_boolean)


@dataclass(frozen=True)
class FilePart:
    """The part of a table's files that a task reads.

    Attributes:
        file: Number of the file in its table.
        n_bytes: About what it holds, uncompressed.
        groups: Row groups of a Parquet file; empty for a file as a whole.
    """

    file: int
    n_bytes: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class FileTable:
    """A table of files.

    Attributes:
        form: Of the files.
        files: In their order.
        schema: Of the first file; all Parquet files have the same.
        parts: All that there is to read, in the files' order.
    """

    form: Literal["avro", "parquet"]
    files: tuple[DataPath, ...]
    schema: pa.Schema
    parts: tuple[FilePart, ...]

    def batches(self, part: FilePart, columns: Sequence[str], n_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, at most ``n_rows`` at a time; Avro's batches are as small as its records want them.

        Raises:
            DataError: The file is damaged.
        """
        path = self.files[part.file]
        if self.form == "avro":
            for batch in avro_batches(path, self.schema):
                yield flat(batch)
            return
        try:
            with pq.ParquetFile(regular_path(kept_copy(path)), pre_buffer=False, buffer_size=_BUFFER_BYTES) as held:
                chosen = list(dict.fromkeys(columns))
                for batch in held.iter_batches(n_rows, list(part.groups), chosen, use_threads=False):
                    yield _plain(batch)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with values in the place of numbers of a dictionary."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _damaged(path: DataPath, error: Exception) -> DataError:
    remedy = "" if path.suffix in (".parquet", ".pq") else "; a folder of a table holds its part files alone"
    return DataError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}{remedy}")


def avro_table(source: DataPath) -> FileTable:
    """Return a table of Avro files.

    Raises:
        DataError: The first is none.
    """
    files = tuple(data_files(source))
    parts = (FilePart(number, file.stat().st_size) for number, file in enumerate(files))
    return FileTable("avro", files, avro_schema(files[0]), tuple(parts))


def parquet_table(source: Path) -> FileTable | None:
    """Return a table of Parquet files that hold what Arrow and Spark take for the same; None where Spark has to read.

    Spark has to read columns in the names of folders (``day=3/``), vectors of Spark ML and other structs without an
    image, decimals, and unsigned numbers above 8 bits. Spark has to read files with different columns and very many
    files, too. If one page of each column of a row group is too much for a task, Spark has to read the table.

    Raises:
        DataError: A file is damaged.
    """
    files = tuple(data_files(source))
    folders = (
        {part for file in files for part in name_below(source, file).split("/")[:-1]} if source.is_dir() else set()
    )
    if not 0 < len(files) <= MOST_FILES or any("=" in folder for folder in folders):
        return None
    with ThreadPoolExecutor(_FOOTERS_AT_A_TIME) as pool:
        footers = list(pool.map(read_footer, files))
    columns = [
        [(field.name, value_type(field.type)) for field in footer.schema.to_arrow_schema()] for footer in footers
    ]
    if any(of_file != columns[0] for of_file in columns) or not all(_is_plain(kind) for _, kind in columns[0]):
        return None
    if any(_open_bytes(footer) > _OPEN_BYTES for footer in footers):
        return None
    parts = [FilePart(number, *run) for number, footer in enumerate(footers) for run in _cut(footer)]
    return FileTable("parquet", files, pa.schema(columns[0]), tuple(parts))


def read_footer(path: Path) -> pq.FileMetaData:
    """Return the footer of a Parquet file.

    Raises:
        DataError: The file is damaged.
    """
    try:
        return pq.read_metadata(regular_path(path))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _open_bytes(footer: pq.FileMetaData) -> int:
    """Return about what a task holds of a row group at a time: of each column a page and the dictionary."""
    n_bytes = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.total_byte_size > n_bytes:
            columns = (group.column(i) for i in range(group.num_columns))
            n_bytes = max(
                n_bytes, sum(min(column.total_uncompressed_size, _open_bytes_of(column)) for column in columns)
            )
    return n_bytes


def _open_bytes_of(column: pq.ColumnChunkMetaData) -> int:
    return _PAGE_BYTES + (_DICTIONARY_BYTES if column.has_dictionary_page else 0)


def _cut(footer: pq.FileMetaData) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield bytes and numbers of the row groups of each task; a file without rows has one task without groups."""
    groups: list[int] = []
    n_bytes = 0
    for number in range(footer.num_row_groups):
        size = footer.row_group(number).total_byte_size
        if groups and n_bytes + size > _PART_BYTES:
            yield n_bytes, tuple(groups)
            groups, n_bytes = [], 0
        groups.append(number)
        n_bytes += size
    yield n_bytes, tuple(groups)


def value_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, also for a column with a dictionary."""
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


def _is_plain(arrow_type: pa.DataType) -> bool:
    """Return whether Spark gives the same values for a column of a type; no role takes times and dates."""
    if is_list(arrow_type):
        arrow_type = arrow_type.value_type
        return any(is_of(arrow_type) for is_of in _NUMBERS)
    tests = (
        *_NUMBERS,
        holds_bytes,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_temporal,
    )
    return any(is_of(arrow_type) for is_of in tests)
