"""Rows of a table, Parquet or CSV, read a few at a time: an image, the path of one, or the numbers of a sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from caffe_import.files.regular_file import regular_path
from deepspark_ops.config.commands.predict import BundleInputConfig, names_of
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.list_lines import LABEL_WORDS, PATH_WORDS
from deepspark_ops.ingest.tables.arrow_columns import arrays, numbers
from deepspark_ops.predict.record import Content, InputRecord, Inputs, vector_of
from deepspark_ops.predict.samples import BundleForm, SampleForm
from deepspark_ops.shards.table_columns import TableColumns as TrainedColumns
from deepspark_ops.stores.staging import kept_copy
from deepspark_ops.stores.store_path import DataPath, joined

_ROWS_READ = 64
"""A row may be a photograph of some megabytes."""
Numbered = tuple[int, pa.RecordBatch]
"""Rows of a table, with the number of the first one."""
_NAMES_TOLD = 12
_ID_WORDS = frozenset("id key index uuid row_id __index_level_0__".split())


@dataclass(frozen=True)
class TableColumns:
    """Which columns are read.

    Attributes:
        image: Holds images or their paths; None where numbers are read.
        features: Hold the numbers of a sample.
        id: Names the rows; None for their paths or numbers.
        inputs: For a bundle with several inputs: input -> its column; nothing else is read then.
        may_miss: May a number be missing? It is NaN then, which the bundle fills.
        widths: Numbers of each feature in a row; empty for a single column of lists.
        remarks: What is not as it was in training, for people.
    """

    image: str | None
    features: tuple[str, ...]
    id: str | None
    inputs: tuple[tuple[str, str], ...] = ()
    may_miss: bool = False
    widths: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        of_inputs = (column for _, column in self.inputs)
        found = (self.id, self.image, *self.features, *of_inputs)
        return list(dict.fromkeys(name for name in found if name is not None))


def parquet_rows(config: BundleInputConfig, form: BundleForm) -> Inputs:
    """Return the rows of a Parquet file, or of those in a folder by name.

    Args:
        config: Names the table and perhaps its columns.
        form: What the bundle takes.

    Raises:
        ConfigError: Columns that are not there or do not fit the bundle.
        DataError: A file is damaged.
    """
    path = config.input
    files = parquet_files(path) if path.is_dir() else [path]
    try:
        opened = [pa.parquet.ParquetFile(regular_path(kept_copy(file))) for file in files]
        n_rows = sum(file.metadata.num_rows for file in opened)
        schema = opened[0].schema_arrow
    except (pa.ArrowException, OSError) as error:
        msg = f"input={path}: not readable as Parquet: {error}"
        raise DataError(msg) from error
    columns = choose_columns(schema, config, form)

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return table_records(_groups_from(opened, columns, start), columns, config, start, stop)

    return Inputs("Parquet table", lambda: n_rows, read, columns.remarks)


def _groups_from(files: Sequence[pa.parquet.ParquetFile], columns: TableColumns, start: int) -> Iterator[Numbered]:
    """Yield the rows, a few at a time, from the row group on that has row ``start``; with the number of their first."""
    at = 0
    for file in files:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        skipped = 0
        while skipped < len(sizes) and at + sizes[skipped] <= start:
            at += sizes[skipped]
            skipped += 1
        wanted = list(range(skipped, len(sizes)))
        for batch in file.iter_batches(_ROWS_READ, row_groups=wanted, columns=columns.names) if wanted else ():
            yield at, batch
            at += batch.num_rows


def csv_rows(config: BundleInputConfig, form: BundleForm) -> Inputs:
    """Return the rows of a CSV file, whose first line names its columns; arguments and errors as ``parquet_rows``."""
    path = config.input
    try:
        with pa.csv.open_csv(regular_path(kept_copy(path))) as opened:
            schema = opened.schema
    except (pa.ArrowException, OSError) as error:
        msg = f"input={path}: not readable as CSV with a line of column names: {error}"
        raise DataError(msg) from error
    columns = choose_columns(schema, config, form)
    types = {name: pa.string() for name in (columns.id, columns.image) if name is not None}
    # Arrow takes the types from the first rows: whole numbers there may be others further down.
    features = [name for name in columns.features if not pa.types.is_boolean(schema.field(name).type)]
    types |= {name: pa.float64() for name in features}
    options = pa.csv.ConvertOptions(include_columns=columns.names, column_types=types)

    def batches() -> Iterator[Numbered]:
        at = 0
        with pa.csv.open_csv(regular_path(kept_copy(path)), convert_options=options) as opened:
            for batch in opened:
                yield at, batch
                at += batch.num_rows

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return table_records(batches(), columns, config, start, stop)

    return Inputs("CSV table", lambda: None, read, columns.remarks)


def parquet_files(folder: DataPath) -> list[DataPath]:
    """Return the Parquet files of a folder as Spark writes one: by name, without hidden ones and those of a ``_``."""
    paths = [path for suffix in ("parquet", "pq") for path in folder.rglob(f"*.{suffix}")]
    return sorted((path for path in paths if path.is_file() and not path.name.startswith((".", "_"))), key=str)


def choose_columns(schema: pa.Schema, config: BundleInputConfig, form: BundleForm) -> TableColumns:
    """Return the columns that are read: those that are named, else those of usual names or types.

    Raises:
        ConfigError: One is not there, or they do not fit what the bundle takes.
    """
    if len(form.inputs) > 1 or config.input_columns is not None:
        return TableColumns(None, (), config.id_column, _columns_of_inputs(schema, config, form))
    n_values = form.inputs[0].n_values
    features = names_of(config.feature_columns) if config.feature_columns else ()
    for option, name in [
        ("id_column", config.id_column),
        ("image_column", config.image_column),
        *(("feature_columns", name) for name in features),
    ]:
        if name is not None and name not in schema.names:
            msg = f"{option}={name}: no such column in {config.input}; it has {_shown(schema)}"
            raise ConfigError(msg)
    if config.image_column is not None or (not features and n_values is None):
        return TableColumns(config.image_column or _image_column(schema, config), (), config.id_column)
    only_input = form.inputs[0]
    features, remarks = _feature_columns(schema, config, only_input, features)
    if len(features) == 1 and _is_list(schema.field(features[0]).type):
        return TableColumns(None, features, config.id_column, may_miss=only_input.may_miss, remarks=remarks)
    widths = _widths(features, only_input.table)
    if not features or (n_values is not None and sum(widths) != n_values):
        found = f"{len(features)} columns of numbers" + (f" ({', '.join(features[:8])}, ...)" if features else "")
        msg = f"input={config.input}: {found}, the bundle takes {n_values} numbers; name them with feature_columns"
        raise ConfigError(msg)
    return TableColumns(None, features, config.id_column, may_miss=only_input.may_miss, widths=widths, remarks=remarks)


def _feature_columns(
    schema: pa.Schema, config: BundleInputConfig, form: SampleForm, named: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of features: the named ones, else those of training; and remarks if they are others.

    Raises:
        ConfigError: A column of training is not there, or the same columns are named in another order.
    """
    trained = () if form.table is None else tuple(column.name for column in form.table.features)
    if not trained:
        return named or _number_columns(schema, config), ()
    order = ",".join(trained[:_NAMES_TOLD]) + (f" and {len(trained) - _NAMES_TOLD} more" * (len(trained) > _NAMES_TOLD))
    if not named:
        if missing := [name for name in trained if name not in schema.names]:
            msg = (
                f"input={config.input}: no column {', '.join(missing[:_NAMES_TOLD])}; the net was trained on {order},"
                f" and the table has {_shown(schema)}; feature_columns names others, in the order of these"
            )
            raise ConfigError(msg)
        return trained, ()
    if named != trained and sorted(named) == sorted(trained):
        msg = f"feature_columns={','.join(named)}: the net was trained on {order}, in this order; leave the option out"
        raise ConfigError(msg)
    remark = f"feature_columns={','.join(named)} take the places of {order}, on which the net was trained"
    return named, (remark,) if named != trained else ()


def _widths(features: Sequence[str], trained: TrainedColumns | None) -> tuple[int, ...]:
    """Return how many numbers each column has in a row: as in training, else one."""
    of_training = () if trained is None else tuple(column.width for column in trained.features)
    return of_training if len(of_training) == len(features) else (1,) * len(features)


def _columns_of_inputs(schema: pa.Schema, config: BundleInputConfig, form: BundleForm) -> tuple[tuple[str, str], ...]:
    """Return (input, its column) of each input of the bundle.

    Raises:
        ConfigError: A column is not there, or an input is none of the bundle's.
    """
    if config.image_column is not None or config.feature_columns is not None:
        names = ", ".join(form.names)
        msg = f"the bundle takes {len(form.inputs)} inputs ({names}): name their columns with input_columns"
        raise ConfigError(msg)
    pairs = (part.split("=", 1) for part in (config.input_columns or "").split(",") if part)
    given = {name.strip(): column.strip() for name, column in pairs}
    if unknown := sorted(set(given) - set(form.names)):
        known = ", ".join(form.names)
        msg = f"input_columns={config.input_columns}: no input {', '.join(unknown)}; the bundle has {known}"
        raise ConfigError(msg)
    wanted = [(name, given.get(name, name)) for name in form.names]
    if config.id_column is not None and config.id_column not in schema.names:
        msg = f"id_column={config.id_column}: no such column in {config.input}; it has {_shown(schema)}"
        raise ConfigError(msg)
    for name, column in wanted:
        if column not in schema.names:
            msg = (
                f'input "{name}": no column {column} in {config.input}; it has {_shown(schema)}; say which one it is:'
                f" input_columns={name}=COLUMN"
            )
            raise ConfigError(msg)
    return tuple(wanted)


def _image_column(schema: pa.Schema, config: BundleInputConfig) -> str:
    binary = [field.name for field in schema if _holds_bytes(field.type)]
    paths = [field.name for field in schema if _is_text(field.type) and field.name.lower() in PATH_WORDS]
    if len(binary) == 1 or (not binary and paths):
        return str((binary or paths)[0])
    found = f"several columns of bytes ({', '.join(binary)})" if binary else f"columns {_shown(schema)}"
    msg = f"input={config.input}: {found}; name the one with images or their paths with image_column"
    raise ConfigError(msg)


def _number_columns(schema: pa.Schema, config: BundleInputConfig) -> tuple[str, ...]:
    known = LABEL_WORDS | _ID_WORDS | {(config.id_column or "").lower()}
    numbers = [field.name for field in schema if _is_number(field.type) and field.name.lower() not in known]
    lists = [field.name for field in schema if _is_list(field.type)]
    return tuple(lists if len(lists) == 1 and not numbers else numbers)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _holds_bytes(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _shown(schema: pa.Schema) -> str:
    names = ", ".join(schema.names[:12])
    return f"{names}, ..." if len(schema.names) > 12 else names


def table_records(
    batches: Iterator[Numbered],
    columns: TableColumns,
    config: BundleInputConfig,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[InputRecord]:
    """Yield the records of a table's rows from number ``start`` to before ``stop``.

    Args:
        batches: Rows in their order, with the number of the first of each batch.
        columns: Which columns they are made of.
        config: Names the table, and what its paths start from.
        start: Rows before it are left out.
        stop: Nothing from it on is read; None for all.

    Raises:
        DataError: A part of the table cannot be read.
    """
    at = start
    try:
        for number, whole in batches:
            at = number
            if stop is not None and number >= stop:
                return
            last = whole.num_rows if stop is None else min(whole.num_rows, stop - number)
            for first in range(max(0, start - number), last, _ROWS_READ):
                batch = whole.slice(first, min(_ROWS_READ, last - first))
                at = number + first
                ids = None if columns.id is None else [str(value) for value in batch.column(columns.id).to_pylist()]
                numbers = [str(at + row) for row in range(batch.num_rows)]
                yield from _batch_records(batch, columns, ids, numbers, config)
    except pa.ArrowException as error:
        msg = f"input={config.input}: row {at:,} or one shortly after: {error}"
        raise DataError(msg) from error


def _batch_records(
    batch: pa.RecordBatch, columns: TableColumns, ids: list[str] | None, numbers: list[str], config: BundleInputConfig
) -> Iterator[InputRecord]:
    if columns.inputs:
        yield from _several(batch, columns.inputs, ids or numbers, config)
    elif columns.image is not None:
        yield from _images(batch.column(columns.image), ids, numbers, config)
    else:
        yield from _samples(batch, columns, ids or numbers)


def _several(
    batch: pa.RecordBatch, inputs: Sequence[tuple[str, str]], ids: list[str], config: BundleInputConfig
) -> Iterator[InputRecord]:
    """Yield the rows of a bundle with several inputs: a cell is an image, its path, a list of numbers or one number."""
    root = _root_folder(config)
    cells = {name: batch.column(column).to_pylist() for name, column in inputs}
    for row, id_of_row in enumerate(ids):
        yield InputRecord(id_of_row, {name: _content(column[row], root) for name, column in cells.items()})


def _content(cell: Any, root: DataPath) -> Content | None:
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if cell is None or isinstance(cell, bytes):
        return cell
    return joined(root, cell) if isinstance(cell, str) else vector_of(cell)


def _root_folder(config: BundleInputConfig) -> DataPath:
    return config.root_folder or (config.input if config.input.is_dir() else config.input.parent)


def _images(
    column: pa.Array, ids: list[str] | None, numbers: list[str], config: BundleInputConfig
) -> Iterator[InputRecord]:
    root = _root_folder(config)
    for row, cell in enumerate(column.to_pylist()):
        value, name = cell, None
        if isinstance(cell, dict):  # as the Hugging Face Hub keeps images: {bytes, path}
            value, name = cell.get("bytes") or cell.get("path"), cell.get("path")
        elif isinstance(cell, str):
            name = cell
        name = ids[row] if ids else (name or numbers[row])
        if isinstance(value, str):
            yield InputRecord(name, joined(root, value))
        elif isinstance(value, bytes):
            yield InputRecord(name, value)
        else:
            yield InputRecord(name, None, "the table has no image there")


def _samples(batch: pa.RecordBatch, columns: TableColumns, ids: list[str]) -> Iterator[InputRecord]:
    features = columns.features
    held = [batch.column(name) for name in features]
    rows: Any
    rows = _matrix(held, columns) if columns.widths else held[0].to_pylist()
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


def _matrix(held: Sequence[pa.Array], columns: TableColumns) -> list[npt.NDArray[np.float64] | None]:
    """Return the numbers of each row, read as ingestion reads them; None for one with an array of another length."""
    parts, is_bad = [], np.zeros(len(held[0]), bool)
    for column, width in zip(held, columns.widths, strict=True):
        if _is_list(column.type):
            values, is_short = arrays(column, width, np.float64)
            is_bad |= is_short
        else:
            values = numbers(column, np.float64)[:, np.newaxis]
        parts.append(values)
    rows = np.concatenate(parts, axis=1)
    return [None if is_bad[at] else row for at, row in enumerate(rows)]


def _names(columns: TableColumns) -> list[str]:
    return [
        name if width == 1 else f"{name}[{at}]"
        for name, width in zip(columns.features, columns.widths, strict=True)
        for at in range(width)
    ]
