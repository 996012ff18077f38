"""Rows of a table's files without Spark: all of Avro's, whose reader Spark does not bring, and the first of others."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq

from caffe_import.file_access.regular_file import open_regular, regular_path
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.ingest.files.archive import read_start
from deepspark_ops.ingest.files.json_rows import json_batches, json_schema
from deepspark_ops.ingest.files.table_files import data_files, is_header_alone, no_rows, separator_of
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, count_numbers, mark_numbers, skip_line, with_broken_lines
from deepspark_ops.stores.staging import kept_copy
from deepspark_ops.stores.store_path import DataPath, name_below

OTHER_TYPE = pa.struct([])
"""Stands for a type that no role of a column takes."""
_FILES_AHEAD = 1
"""Files, and batches of each, that are read while one is worked on."""
_AVRO_ROWS = 4096
_AVRO_VALUES = 2**18
_AVRO_DAMAGE = (
    *(ValueError, EOFError, IndexError, OverflowError, TypeError, MemoryError),
    *(struct.error, zlib.error, pa.ArrowException),
)
"""Errors of fastavro and Arrow for damaged bytes; a MemoryError for a block of an impossible size."""
_AVRO_BYTES = 2**24
_AVRO_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "null": pa.null(),
}
_AVRO_TIMES: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def separator(path: DataPath, content: bytes | None = None) -> str:
    """Return what separates the columns of a CSV file; ``content``: of the file, if the caller has read the file.

    Raises:
        ConfigError: It has no header line.
        DataError: It has a header line and no row.
    """
    start = (read_start(path) if content is None else content).decode("utf-8-sig", "replace")
    mark = separator_of(start)
    if mark is None and is_header_alone(start):
        raise no_rows(path)
    if mark is None:
        first = start.partition("\n")[0][:120]
        msg = f'{path}: the first line, "{first}", is no header line of column names with rows below it; put one first'
        raise ConfigError(msg)
    return mark


def first_rows(path: DataPath, name: SourceFormat, n_rows: int) -> pa.RecordBatch:
    """Return the first rows of a table of files, with the columns in Spark's order: the order of the features.

    Raises:
        ConfigError: A CSV file without a header line.
        DataError: No rows, or a file that cannot be read.
    """
    with _readable_rows(path, name) as rows:
        batches: list[pa.RecordBatch] = []
        n_lacking = n_rows
        for batch in rows.batches(rows.schema.names, n_rows):
            batches.append(batch.slice(0, n_lacking))
            n_lacking -= batches[-1].num_rows
            if not n_lacking:
                break
        table = pa.Table.from_batches(batches, rows.schema)
    if not table.num_rows:
        raise no_rows(path)
    if name == "csv":
        table = table.cast(mark_numbers(table.schema, count_numbers(table)))
    if name == "json_lines":
        folders = name_below(path, next(data_files(path))).split("/")[:-1] if path.is_dir() else []
        of_folders = {folder.partition("=")[0] for folder in folders}
        table = table.select(sorted(table.schema.names, key=lambda column: (column in of_folders, column)))
    return flat(table.combine_chunks().to_batches()[0])


def listed_paths(path: DataPath, name: SourceFormat, column: str) -> list[str]:
    """Return the texts in a column of a table of files; nothing for a column of another type.

    Raises:
        ConfigError: A CSV file without a header line.
        DataError: No rows, or a file that cannot be read.
    """
    with _readable_rows(path, name) as rows:
        if column not in rows.schema.names or rows.schema.field(column).type not in (pa.string(), pa.large_string()):
            return []
        batches = rows.batches([column], _AVRO_ROWS)
        return [text or "" for batch in batches for text in batch.column(column).to_pylist()]


@contextmanager
def _readable_rows(path: DataPath, name: SourceFormat) -> Iterator[FileRows]:
    """Yield the rows of a table of files; an error of Arrow names the table."""
    try:
        local = kept_copy(path)  # Arrow's own reader of s3:// knows no endpoint of this host
        yield file_rows(list(data_files(local)), name, local if local.is_dir() else None)
    except DeepSparkError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"{path}: not a readable table of format {name}: {str(error).splitlines()[0]}"
        raise DataError(msg) from error


@dataclass(frozen=True)
class FileRows:
    """The rows of a table's files, read one after the other by this process.

    Attributes:
        schema: Of the rows.
        count: Returns how many there are; None where counting would read all.
        batches: Yields some columns of the rows, at most so many rows at a time.
    """

    schema: pa.Schema
    count: Callable[[], int | None]
    batches: Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]


def file_rows(
    files: Sequence[Path],
    name: SourceFormat,
    folder: Path | None = None,
    *,
    separator_char: str | None = None,
    types: Mapping[str, pa.DataType] | None = None,
) -> FileRows:
    """Open the files of a table.

    Args:
        files: In their order.
        name: Format of the files.
        folder: Of the files, where names of folders such as ``day=3`` are columns; None: names say nothing.
        separator_char: Separates the columns of a CSV file; None: the header line says.
        types: Types of a CSV file's columns; the first rows say the types of all other columns.

    Raises:
        ConfigError: A CSV file without a header line.
        DataError: An Avro file is damaged.
        pa.ArrowException, OSError, ValueError: A file of another format is damaged; also while rows are read.
    """
    if name == "avro":
        schema = avro_schema(files[0])

        def avro_rows(columns: Sequence[str], _n_rows: int) -> Iterator[pa.RecordBatch]:
            for file in files:
                for batch in avro_batches(file, schema):
                    yield batch.select(list(columns))

        return FileRows(schema, lambda: None, avro_rows)
    if name == "json_lines":
        schema = json_schema(files, folder)
        return FileRows(schema, lambda: None, lambda columns, _n_rows: json_batches(files, schema, columns, folder))
    paths = [str(regular_path(file)) for file in files]
    partitions = {} if folder is None else {"partitioning": "hive", "partition_base_dir": str(folder)}
    if name == "csv":
        return _csv_rows(paths, partitions, separator_char or separator(files[0]), types)
    dataset = pa_dataset.dataset(paths, format=name, **partitions)
    return FileRows(
        dataset.schema,
        dataset.count_rows,  # of the files' footers
        lambda columns, n_rows: dataset.to_batches(
            columns=list(columns), batch_size=n_rows, batch_readahead=_FILES_AHEAD, fragment_readahead=_FILES_AHEAD
        ),
    )


def _csv_rows(
    paths: list[str], partitions: dict[str, str], delimiter: str, types: Mapping[str, pa.DataType] | None
) -> FileRows:
    """Return the rows of CSV files, with the column ``CORRUPT`` of lines with too few or too many values."""

    def opened(broken_lines: dict[int, str]) -> pa_dataset.Dataset:
        form = pa_dataset.CsvFileFormat(
            pa_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=partial(skip_line, broken_lines)),
            convert_options=pa_csv.ConvertOptions(column_types=types),
        )
        return pa_dataset.dataset(paths, format=form, **partitions)

    def batches(columns: Sequence[str], n_rows: int) -> Iterator[pa.RecordBatch]:
        broken_lines: dict[int, str] = {}
        dataset = opened(broken_lines)
        readable = pa.schema([field for field in dataset.schema if field.name in columns])
        for file in dataset.get_fragments():
            broken_lines.clear()
            readable_rows = file.to_batches(
                dataset.schema, columns=readable.names, batch_size=n_rows, batch_readahead=_FILES_AHEAD
            )
            for rows in with_broken_lines(readable_rows, readable, broken_lines):
                yield rows.select(list(columns))

    return FileRows(opened({}).schema.append(pa.field(CORRUPT, pa.string())), lambda: None, batches)


def check_files(source: DataPath, name: SourceFormat) -> None:
    """Read what describes each file of a table, its footer or header, which takes less time than Spark's start.

    Raises:
        DataError: A file is damaged or cut short.
    """
    readers: Mapping[SourceFormat, tuple[str, Callable[[BinaryIO], object]]] = {
        "orc": ("ORC", pa_orc.ORCFile),
        "parquet": ("Parquet", pq.read_metadata),
        "avro": ("Avro", fastavro.reader),
    }
    if name not in readers:
        return
    word, read = readers[name]
    for path in data_files(source):
        try:
            with open_regular(path) as handle:
                read(handle)
        except (pa.ArrowException, OSError, KeyError, *_AVRO_DAMAGE) as error:
            finding = (str(error).splitlines() or [type(error).__name__])[0]
            msg = f"{path}: not a readable {word} file: {finding}; fetch it again"
            raise DataError(msg) from error


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with images' bytes in the place of structs that hold them."""
    columns = [
        pc.struct_field(column, "bytes")
        if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        else column
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def avro_schema(path: DataPath) -> pa.Schema:
    """Return the columns of an Avro file; those of types that no table here uses hold nothing.

    Raises:
        DataError: Not an Avro file, or its records have no fields.
    """
    try:
        with open_regular(path) as handle:
            schema = fastavro.reader(handle).writer_schema
    except (ValueError, EOFError, KeyError) as error:
        msg = f"{path}: not a readable Avro file: {error}"
        raise DataError(msg) from error
    if not isinstance(schema, dict) or "fields" not in schema:
        msg = f"{path}: an Avro file without fields; a table has records"
        raise DataError(msg)
    return pa.schema([(field["name"], _arrow_type(field["type"])) for field in schema["fields"]])


def _arrow_type(avro_type: Any) -> pa.DataType:
    if isinstance(avro_type, list):  # a union; tables use it for values that may be missing
        kinds = [kind for kind in avro_type if kind != "null"]
        return _arrow_type(kinds[0]) if len(kinds) == 1 else OTHER_TYPE
    if isinstance(avro_type, dict):
        if avro_type.get("logicalType") == "decimal":
            return pa.decimal128(min(38, avro_type["precision"]), avro_type.get("scale", 0))
        if "logicalType" in avro_type:
            return _AVRO_TIMES.get(avro_type["logicalType"], OTHER_TYPE)
        if avro_type["type"] == "array":
            return pa.list_(_arrow_type(avro_type["items"]))
        return _arrow_type(avro_type["type"])
    return _AVRO_TYPES.get(avro_type, OTHER_TYPE)


def _avro_column(rows: list[Any], field: pa.Field) -> pa.Array:
    if field.type == OTHER_TYPE:
        return pa.nulls(len(rows), OTHER_TYPE)
    return pa.array([row[field.name] for row in rows], field.type)


def _rows_at_a_time(record: dict[str, Any]) -> int:
    """Return how many records like one are read at a time: each value is an object of Python until then."""
    values = sum(len(value) if isinstance(value, list) else 1 for value in record.values())
    content = sum(len(value) for value in record.values() if isinstance(value, bytes | str))
    return max(1, min(_AVRO_ROWS, _AVRO_VALUES // max(1, values), _AVRO_BYTES // max(1, content)))


def avro_batches(path: DataPath, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Avro file.

    Raises:
        DataError: The file is damaged, or of another schema.
    """
    try:
        with open_regular(path) as handle:
            records = fastavro.reader(handle)
            first = next(records, None)
            n_rows = 1 if first is None else _rows_at_a_time(first)
            records = chain([] if first is None else [first], records)
            while rows := list(islice(records, n_rows)):
                columns = [_avro_column(rows, field) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except KeyError as error:
        msg = f"{path}: no column {error}, which the table's first file has"
        raise DataError(msg) from error
    except _AVRO_DAMAGE as error:
        msg = f"{path}: damaged Avro file: {str(error) or type(error).__name__}"
        raise DataError(msg) from error
