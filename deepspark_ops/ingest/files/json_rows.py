"""Rows of JSON lines without Spark: a line that is no record, or a word among numbers, costs its row alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.json

from deepspark_ops.ingest.files.archive import opened_content
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, is_text, mark_numbers

_ROWS_READ: Final = 1000
"""At a time; the first say the types of columns."""
_ARRAYS_SHARE: Final = 0.9
"""With this share of arrays of numbers a column is one of arrays, and a row with another value is bad."""
_NOT_OF_TYPE: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
_PARTITION: Final = re.compile(r"([^=/]+)=([^/]*)/")
_Records = Sequence[Mapping[str, Any]]


def json_schema(files: Sequence[Path], folder: Path | None = None) -> pa.Schema:
    """Return the columns of JSON lines by the first rows, and the column ``CORRUPT`` of lines that are no record.

    Args:
        files: In their order.
        folder: Of the files, where names of folders such as ``day=3`` are columns; None: names say nothing.

    Raises:
        DataError: A compressed file is damaged.
    """
    records = next((_parsed(lines, keys) for lines, keys in _line_blocks(files, folder)), [])
    fields = json_fields(records)
    counts = json_numbers(records)
    of_text = {field.name: counts[field.name] for field in fields if is_text(field.type) and field.name in counts}
    return mark_numbers(pa.schema([*fields, pa.field(CORRUPT, pa.string())]), of_text)


def json_fields(records: _Records) -> list[pa.Field]:
    """Return the columns of the first records, in the order of the file."""
    names = [name for name in dict.fromkeys(chain.from_iterable(records)) if name != CORRUPT]
    return [pa.field(name, _type(records, name)) for name in names]


def _type(records: _Records, name: str) -> pa.DataType:
    """Return the type of a column; arrays of whole numbers may have fractions in later rows."""
    values = [value for record in records if (value := record.get(name)) is not None]
    arrays = [value for value in values if isinstance(value, list) and all(map(_is_number, value))]
    is_of_arrays = len(arrays) >= _ARRAYS_SHARE * len(values)
    first = next(iter(arrays if is_of_arrays else values), None)
    kind = (_column([{name: first}], name) if isinstance(first, list) else _column(records, name)).type
    return pa.list_(pa.float64()) if pa.types.is_list(kind) and pa.types.is_integer(kind.value_type) else kind


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def json_batches(
    files: Sequence[Path], schema: pa.Schema, columns: Sequence[str], folder: Path | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of JSON lines. A column with a value of another type is of text in that batch.

    Arrow reads lines that fit the schema in a third of the time.

    Args:
        files: In their order.
        schema: Of ``json_schema``.
        columns: Names of the columns.
        folder: See ``json_schema``.

    Raises:
        DataError: A compressed file is damaged.
    """
    chosen = pa.schema([schema.field(name) for name in columns])
    for lines, keys in _line_blocks(files, folder):
        rows = None if keys.keys() & set(columns) else _rows_of_schema(lines, chosen)
        if rows is None:
            records = _parsed(lines, keys)
            arrays = [_column(records, field.name, field.type) for field in chosen]
            rows = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        yield rows


def _rows_of_schema(lines: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """Return the rows of lines; None where a line does not fit the schema."""
    content = pa.BufferReader(b"".join(lines))
    parse_options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read_options = pa.json.ReadOptions(use_threads=False, block_size=content.size() + 1)
    try:
        table = pa.json.read_json(content, read_options=read_options, parse_options=parse_options)
    except pa.ArrowInvalid:
        return None
    (rows,) = table.combine_chunks().to_batches()
    return rows.select(schema.names) if rows.num_rows == len(lines) else None


def json_record(line: str | bytes) -> dict[str, Any]:
    """Return the record of a line; of a broken line, a record with the line under ``CORRUPT``."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    return record if isinstance(record, dict) else {CORRUPT: str(line)}


def json_numbers(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return (numbers, values) of each column, for ``mark_numbers``; a number in quotes is a text."""
    counts: dict[str, tuple[int, int]] = {}
    for record in records:
        for name, value in record.items():
            if value is not None:
                n_numbers, n_values = counts.get(name, (0, 0))
                counts[name] = (n_numbers + isinstance(value, int | float), n_values + 1)
    return counts


def _line_blocks(files: Sequence[Path], folder: Path | None) -> Iterator[tuple[list[bytes], dict[str, int | str]]]:
    """Yield lines that are not empty, and the columns in the names of the file's folders."""
    for file in files:
        keys = {} if folder is None else _partition_keys(file.relative_to(folder).as_posix())
        with opened_content(file) as content:
            lines = (line.removeprefix(b"\xef\xbb\xbf") for line in content if line.strip())
            while few := list(islice(lines, _ROWS_READ)):
                yield few, keys


def _parsed(lines: Sequence[bytes], keys: Mapping[str, int | str]) -> _Records:
    return [{**json_record(line), **keys} for line in lines]


def _partition_keys(path: str) -> dict[str, int | str]:
    """Return the columns in the names of a file's folders, such as ``day=3``."""
    return {name: int(value) if value.isdecimal() else value for name, value in _PARTITION.findall(path)}


def _column(records: _Records, name: str, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column; one with a value of another type as text, of lists or records without such values."""
    values = [record.get(name) for record in records]
    try:
        return pa.array(values, kind)
    except _NOT_OF_TYPE:
        if kind is not None and pa.types.is_nested(kind):
            return pa.array([value if _is_of(value, kind) else None for value in values], kind)
        texts = (value if value is None or isinstance(value, str) else json.dumps(value) for value in values)
        return pa.array(texts, pa.string())


def _is_of(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _NOT_OF_TYPE:
        return False
    return True
