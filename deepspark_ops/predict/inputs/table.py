"""Rows of a table as inputs: an image, the path of an image, or the numbers of a sample.

Readers of ingestion read the rows; nothing is held that grows with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.archive import read_start
from deepspark_ops.ingest.files.file_batches import file_rows
from deepspark_ops.ingest.files.table_files import data_files, separator_of
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, NO_RECORD
from deepspark_ops.ingest.tables.columns import arrays, numbers
from deepspark_ops.ingest.tables.file_parts import FilePart, FileTable, read_footer, value_type
from deepspark_ops.predict.inputs.named_images import NamedImages
from deepspark_ops.predict.inputs.table_columns import InputColumns, choose_columns
from deepspark_ops.predict.record import Content, InputRecord, Inputs, vector_of
from deepspark_ops.predict.samples import BundleForm
from deepspark_ops.stores.staging import kept_copy
from deepspark_ops.stores.store_path import DataPath

TableFormat = Literal["parquet", "csv", "orc", "avro", "json_lines"]
_WORDS: Final = {"parquet": "Parquet", "csv": "CSV", "orc": "ORC", "avro": "Avro", "json_lines": "JSON lines"}
_PARQUET_NAMES: Final = (".parquet", ".pq")
_ROWS_READ: Final = 64
"""A row may be a photograph of some megabytes."""
_ROWS_SCANNED: Final = 4096
Numbered = tuple[int, pa.RecordBatch]
"""Rows of a table, with the number of the first row."""


@dataclass(frozen=True)
class TableRows:
    """The rows of a table's files.

    Attributes:
        schema: Columns of the rows.
        count: Returns the number of rows; None if only reading all rows would tell.
        batches: Yields the rows of some columns. Arguments: the columns, and the row at or before which to begin.
    """

    schema: pa.Schema
    count: Callable[[], int | None]
    batches: Callable[[InputColumns, int], Iterator[Numbered]]


def table_inputs(config: BundleInputConfig, form: BundleForm, table_format: TableFormat) -> Inputs:
    """Return the rows of a file, or of a folder's files by name.

    Raises:
        ConfigError: Columns do not exist or do not fit the bundle.
        DataError: A file is damaged, or the folder has no file of the format.
    """
    path, word = config.input, _WORDS[table_format]
    files = [kept_copy(file) for file in _table_files(path, table_format)]
    if not files:
        msg = f"input={path}: a folder without a file of a {word} table"
        raise DataError(msg)
    try:
        table = _parquet_rows(files) if table_format == "parquet" else _scanned_rows(files, table_format)
        n_rows = table.count()
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"input={path}: not readable as {word}: {str(error).splitlines()[0]}"
        raise DataError(msg) from error
    columns = choose_columns(table.schema, config, form)

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return table_records(table.batches(columns, start), columns, NamedImages.of(config), start, stop)

    return Inputs(f"{word} table", lambda: n_rows, read, columns.remarks)


def _table_files(path: DataPath, table_format: TableFormat) -> list[DataPath]:
    """Return the files of a table; in a folder of Parquet files, only files with a name of Parquet."""
    files = list(data_files(path))
    is_filtered = table_format == "parquet" and path.is_dir()
    return [file for file in files if file.suffix.lower() in _PARQUET_NAMES] if is_filtered else files


def _parquet_rows(files: Sequence[Path]) -> TableRows:
    """Return the rows of Parquet files; reading begins with the row group of the wanted row.

    Raises:
        DataError: A file is damaged.
    """
    footers = [read_footer(file) for file in files]
    schema = pa.schema([(field.name, value_type(field.type)) for field in footers[0].schema.to_arrow_schema()])
    group_rows = [[footer.row_group(group).num_rows for group in range(footer.num_row_groups)] for footer in footers]
    table = FileTable("parquet", tuple(files), schema, ())

    def batches(columns: InputColumns, start: int) -> Iterator[Numbered]:
        first_row = 0
        for file, sizes in enumerate(group_rows):
            n_skipped = 0
            while n_skipped < len(sizes) and first_row + sizes[n_skipped] <= start:
                first_row += sizes[n_skipped]
                n_skipped += 1
            part = FilePart(file, 0, tuple(range(n_skipped, len(sizes))))
            for batch in table.batches(part, columns.names, _ROWS_READ) if part.groups else ():
                yield first_row, batch
                first_row += batch.num_rows

    return TableRows(schema, lambda: sum(map(sum, group_rows)), batches)


def _scanned_rows(files: Sequence[Path], table_format: TableFormat) -> TableRows:
    """Return the rows of files that are read from the beginning.

    Raises:
        DataError: A file is damaged.
        pa.ArrowException, OSError, ValueError: Likewise.
    """
    # The header of a CSV file may have a single name, or numbers as names; images may stand below it.
    start = read_start(files[0]).decode("utf-8-sig", "replace") if table_format == "csv" else ""
    separator = separator_of(start) or ","
    table = file_rows(files, table_format, separator_char=separator)

    def batches(columns: InputColumns, _start: int) -> Iterator[Numbered]:
        first_row = 0
        typed = file_rows(files, table_format, separator_char=separator, types=_csv_types(columns))
        broken_lines = [CORRUPT] if CORRUPT in table.schema.names else []
        for batch in typed.batches([*columns.names, *broken_lines], _ROWS_SCANNED):
            yield first_row, batch
            first_row += batch.num_rows

    return TableRows(table.schema, table.count, batches)


def _csv_types(columns: InputColumns) -> dict[str, pa.DataType]:
    """Return the types of a CSV file's columns: text, so that a word among numbers is an error of its row alone."""
    return {name: pa.string() for name in (columns.id, columns.image, *columns.features) if name is not None}


def table_records(
    batches: Iterator[Numbered],
    columns: InputColumns,
    images: NamedImages,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[InputRecord]:
    """Yield the records of a table's rows ``[start, stop)``.

    ``batches`` are in order, with the number of the first row of each.

    Raises:
        DataError: A part of the table cannot be read.
    """
    at = start
    try:
        for number, rows in batches:
            at = number
            if stop is not None and number >= stop:
                return
            last = rows.num_rows if stop is None else min(rows.num_rows, stop - number)
            for first in range(max(0, start - number), last, _ROWS_READ):
                batch = rows.slice(first, min(_ROWS_READ, last - first))
                at = number + first
                numbers = [str(at + row) for row in range(batch.num_rows)]
                ids = None if columns.id is None else _ids(batch.column(columns.id), numbers)
                records = _batch_records(batch, columns, ids, numbers, images)
                if CORRUPT in batch.schema.names:
                    records = _without_broken_lines(records, batch.column(CORRUPT))
                yield from records
    except (pa.ArrowException, DataError) as error:
        msg = f"{images.named_by}: row {at:,} or one shortly after: {error}"
        raise DataError(msg) from error


def _ids(column: pa.Array, numbers: Sequence[str]) -> list[str]:
    """Return the names of rows; a row without a name, such as a broken line, has its number."""
    values = zip(column.to_pylist(), numbers, strict=True)
    return [number if value is None else str(value) for value, number in values]


def _without_broken_lines(records: Iterator[InputRecord], broken_lines: pa.Array) -> Iterator[InputRecord]:
    for record, is_broken in zip(records, broken_lines.is_valid().to_pylist(), strict=True):
        yield InputRecord(record.id, None, NO_RECORD) if is_broken else record


def _batch_records(
    batch: pa.RecordBatch, columns: InputColumns, ids: list[str] | None, numbers: list[str], images: NamedImages
) -> Iterator[InputRecord]:
    if columns.inputs:
        yield from _several(batch, columns.inputs, ids or numbers, images)
    elif columns.image is not None:
        yield from _images(batch.column(columns.image), ids, numbers, images)
    else:
        yield from _samples(batch, columns, ids or numbers)


def _several(
    batch: pa.RecordBatch, inputs: Sequence[tuple[str, str]], ids: list[str], images: NamedImages
) -> Iterator[InputRecord]:
    """Yield the rows of a bundle with several inputs: a cell is an image, a path, a list of numbers or a number."""
    cells = {name: batch.column(column).to_pylist() for name, column in inputs}
    for row, id_of_row in enumerate(ids):
        yield InputRecord(id_of_row, {name: _content(column[row], images) for name, column in cells.items()})


def _content(cell: Any, images: NamedImages) -> Content | None:
    if isinstance(cell, dict):  # an image of the Hugging Face Hub: {bytes, path}
        cell = cell.get("bytes") or cell.get("path")
    if cell is None or isinstance(cell, bytes):
        return cell
    return images.path(cell) if isinstance(cell, str) else vector_of(cell)


def _images(column: pa.Array, ids: list[str] | None, numbers: list[str], images: NamedImages) -> Iterator[InputRecord]:
    for row, cell in enumerate(column.to_pylist()):
        path = cell.get("path") if isinstance(cell, dict) else cell if isinstance(cell, str) else None
        content = _content(cell, images) if isinstance(cell, str | bytes | dict) else None
        error = "the table has no image there" if content is None else ""
        yield InputRecord(ids[row] if ids else (path or numbers[row]), content, error)


def _samples(batch: pa.RecordBatch, columns: InputColumns, ids: list[str]) -> Iterator[InputRecord]:
    features = columns.features
    feature_values = [batch.column(name) for name in features]
    rows: Any
    rows = _matrix(feature_values, columns) if columns.widths else feature_values[0].to_pylist()
    names = _names(columns) if columns.widths else []
    for name, row in zip(ids, rows, strict=True):
        if row is None or (not columns.may_miss and any(value is None for value in row)):
            yield InputRecord(name, None, "numbers are missing")
            continue
        vector = vector_of(row)  # None becomes NaN
        bad = np.flatnonzero(np.isinf(vector) if columns.may_miss else ~np.isfinite(vector))
        if len(bad):
            where = names[bad[0]] if names else f"number {bad[0]} of {features[0]}"
            yield InputRecord(name, None, f"{where} is missing or not finite")
        else:
            yield InputRecord(name, vector)


def _matrix(feature_values: Sequence[pa.Array], columns: InputColumns) -> list[npt.NDArray[np.float64] | None]:
    """Return the numbers of each row, as ingestion reads numbers; None for a row with an array of another length."""
    parts, is_bad = [], np.zeros(len(feature_values[0]), bool)
    for column, width in zip(feature_values, columns.widths, strict=True):
        if pa.types.is_nested(column.type):
            values, is_short = arrays(column, width, np.float64)
            is_bad |= is_short
        else:
            values = numbers(column, np.float64)[:, np.newaxis]
        parts.append(values)
    rows = np.concatenate(parts, axis=1)
    return [None if is_bad[at] else row for at, row in enumerate(rows)]


def _names(columns: InputColumns) -> list[str]:
    return [
        name if width == 1 else f"{name}[{at}]"
        for name, width in zip(columns.features, columns.widths, strict=True)
        for at in range(width)
    ]
