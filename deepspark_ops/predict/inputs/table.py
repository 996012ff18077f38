"""Rows of a table, Parquet or CSV, read a few at a time: an image, the path of one, or the numbers of a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from deepspark_ops.config.predict import BundleInputConfig, names_of
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.list_lines import LABEL_WORDS, PATH_WORDS
from deepspark_ops.predict.inputs.record import InputRecord, Inputs, vector_of

_ROWS_READ = 64
"""A row may be a photograph of some megabytes."""
_ID_WORDS = frozenset("id key index uuid row_id __index_level_0__".split())


@dataclass(frozen=True)
class TableColumns:
    """Which columns are read.

    Attributes:
        image: Holds images or their paths; None where numbers are read.
        features: Hold the numbers of a sample.
        id: Names the rows; None for their paths or numbers.
    """

    image: str | None
    features: tuple[str, ...]
    id: str | None

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for name in (self.id, self.image, *self.features) if name is not None))


def parquet_rows(config: BundleInputConfig, n_values: int | None) -> Inputs:
    """Return the rows of a Parquet file, or of those in a folder by name.

    Args:
        config: Names the table and perhaps its columns.
        n_values: Numbers of a sample that the bundle takes; None if it takes images.

    Raises:
        ConfigError: Columns that are not there or do not fit the bundle.
        DataError: A file is damaged.
    """
    path = config.input
    files = parquet_files(path) if path.is_dir() else [path]
    try:
        opened = [pa.parquet.ParquetFile(file) for file in files]
        n_rows = sum(file.metadata.num_rows for file in opened)
        schema = opened[0].schema_arrow
    except (pa.ArrowException, OSError) as error:
        msg = f"input={path}: not readable as Parquet: {error}"
        raise DataError(msg) from error
    columns = choose_columns(schema, config, n_values)

    def read() -> Iterator[InputRecord]:
        batches = (batch for file in opened for batch in file.iter_batches(_ROWS_READ, columns=columns.names))
        return _records(batches, columns, config)

    return Inputs("Parquet table", n_rows, read)


def csv_rows(config: BundleInputConfig, n_values: int | None) -> Inputs:
    """Return the rows of a CSV file, whose first line names its columns; arguments and errors as ``parquet_rows``."""
    path = config.input
    try:
        with pa.csv.open_csv(path) as opened:
            schema = opened.schema
    except (pa.ArrowException, OSError) as error:
        msg = f"input={path}: not readable as CSV with a line of column names: {error}"
        raise DataError(msg) from error
    columns = choose_columns(schema, config, n_values)
    types = {name: pa.string() for name in (columns.id, columns.image) if name is not None}
    types |= {name: pa.float32() for name in columns.features}
    options = pa.csv.ConvertOptions(include_columns=columns.names, column_types=types)

    def batches() -> Iterator[pa.RecordBatch]:
        with pa.csv.open_csv(path, convert_options=options) as opened:
            yield from opened

    def read() -> Iterator[InputRecord]:
        return _records(batches(), columns, config)

    return Inputs("CSV table", None, read)


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder as Spark writes one: by name, without hidden ones and those of a ``_``."""
    found = (path for suffix in ("parquet", "pq") for path in folder.rglob(f"*.{suffix}"))
    return sorted(path for path in found if path.is_file() and not path.name.startswith((".", "_")))


def choose_columns(schema: pa.Schema, config: BundleInputConfig, n_values: int | None) -> TableColumns:
    """Return the columns that are read: those that are named, else those of usual names or types.

    Raises:
        ConfigError: One is not there, or they do not fit what the bundle takes.
    """
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
    if not features:
        features = _number_columns(schema, config)
    is_list = len(features) == 1 and _is_list(schema.field(features[0]).type)
    if not features or (n_values is not None and not is_list and len(features) != n_values):
        found = f"{len(features)} columns of numbers" + (f" ({', '.join(features[:8])}, ...)" if features else "")
        msg = f"input={config.input}: {found}, the bundle takes {n_values} numbers; name them with feature_columns"
        raise ConfigError(msg)
    return TableColumns(None, features, config.id_column)


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


def _records(
    batches: Iterator[pa.RecordBatch], columns: TableColumns, config: BundleInputConfig
) -> Iterator[InputRecord]:
    first = 0
    try:
        for whole in batches:
            for start in range(0, whole.num_rows, _ROWS_READ):
                batch = whole.slice(start, _ROWS_READ)
                ids = None if columns.id is None else [str(value) for value in batch.column(columns.id).to_pylist()]
                numbers = [str(first + row) for row in range(batch.num_rows)]
                if columns.image is not None:
                    yield from _images(batch.column(columns.image), ids, numbers, config)
                else:
                    yield from _samples(batch, columns.features, ids or numbers)
                first += batch.num_rows
    except pa.ArrowException as error:
        msg = f"input={config.input}: row {first:,} or one shortly after: {error}"
        raise DataError(msg) from error


def _images(
    column: pa.Array, ids: list[str] | None, numbers: list[str], config: BundleInputConfig
) -> Iterator[InputRecord]:
    folder = config.input if config.input.is_dir() else config.input.parent
    root = config.root_folder or folder
    for row, cell in enumerate(column.to_pylist()):
        value, name = cell, None
        if isinstance(cell, dict):  # as the Hugging Face Hub keeps images: {bytes, path}
            value, name = cell.get("bytes") or cell.get("path"), cell.get("path")
        elif isinstance(cell, str):
            name = cell
        name = ids[row] if ids else (name or numbers[row])
        if isinstance(value, str):
            yield InputRecord(name, root / value)
        elif isinstance(value, bytes):
            yield InputRecord(name, value)
        else:
            yield InputRecord(name, None, "the table has no image there")


def _samples(batch: pa.RecordBatch, features: tuple[str, ...], ids: list[str]) -> Iterator[InputRecord]:
    columns = [batch.column(name) for name in features]
    rows: Any
    if len(columns) == 1 and _is_list(columns[0].type):
        rows = columns[0].to_pylist()
    else:
        rows = np.stack([np.asarray(c.cast(pa.float64()).to_numpy(zero_copy_only=False)) for c in columns], axis=1)
    for name, row in zip(ids, rows, strict=True):
        if row is None or any(value is None for value in row):
            yield InputRecord(name, None, "numbers are missing")
            continue
        vector = vector_of(row)
        bad = np.flatnonzero(~np.isfinite(vector))
        if len(bad):
            where = features[bad[0]] if len(features) > 1 else f"number {bad[0]} of {features[0]}"
            yield InputRecord(name, None, f"{where} is missing or not finite")
        else:
            yield InputRecord(name, vector)
