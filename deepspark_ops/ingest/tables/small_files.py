"""Rows of a small CSV or JSON file without Spark, if each value in the file has one reading, which is Spark's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.ingest.files.archive import is_compressed, read_start
from deepspark_ops.ingest.files.file_batches import separator
from deepspark_ops.ingest.files.table_files import no_rows
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, count_numbers, mark_numbers
from deepspark_ops.stores.store_path import DataPath

_MOST_BYTES: Final = 2**22
"""This process reads so much in less time than Spark starts, and Spark reads so much as one part."""
_COUNTED_ROWS: Final = 1000
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
"""Characters that Java's ``trim`` removes: Spark skips a CSV line of blanks."""
_VALUE: Final = re.compile(
    r"""(?P<whole>[+-]?[0-9]{1,18})
    |(?P<real>[ ]{0,8}[+-]?([0-9]{1,18}|[0-9]{0,20}\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?[ ]{0,8}|NaN|-?Inf|-?Infinity)
    |(?P<flag>[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])
    |(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?)
    |(?P<text>[ ]{1,8}
        |[ ]{0,8}(?!T[0-9:+-])(?!(NaN|Inf|Infinity)[ ]*$)            # Spark takes T12 for a time
            ([^\W\d]|[]!\#$%&'()*,/;<=>?@[^`{|}~]).*
        |[+-]?[0-9][0-9.]{0,30},[0-9]{1,30}                           # decimal commas
        |(?=.*[G-OQ-SU-WYZg-oq-wyz])[0-9][A-SU-Za-z0-9_./-]{0,60})   # with a letter that is in no number of Java
    """,
    re.VERBOSE | re.DOTALL,
)
_ODD_CSV: Final = re.compile(r"[\\\r\0\ufeff\ufffd]")
_ODD_JSON: Final = re.compile(r"[\r\0\ufeff\ufffd]|\\u[dD]|[0-9]{300}")
"""With halves of characters, and with numbers that are too long for Spark."""
_TYPES: Final[Mapping[frozenset[str], pa.DataType]] = {
    frozenset({"whole"}): pa.int64(),
    frozenset({"real"}): pa.float64(),
    frozenset({"whole", "real"}): pa.float64(),
    frozenset({"flag"}): pa.bool_(),
    frozenset({"time"}): pa.date32(),
    frozenset({"text"}): pa.string(),
    frozenset({"numbers"}): pa.list_(pa.float64()),
    frozenset({"numbers", "no_numbers"}): pa.list_(pa.float64()),
    frozenset(): pa.string(),
}
"""Kinds of the values in a column -> type of the column."""


class _UncertainError(Exception):
    """Spark may read another value, type or name."""


def small_table(path: DataPath, name: SourceFormat) -> pa.RecordBatch | None:
    """Return the rows of a small file, which is read once; None where Spark may read another value, type or name.

    Raises:
        ConfigError: A CSV file without a header line.
        DataError: The file has no rows, or a compressed file is damaged.
    """
    if name not in _READERS or not isinstance(path, Path) or not path.is_file():
        return None
    if (
        is_compressed(path) != (path.suffix in (".gz", ".bz2"))
        or len(content := read_start(path, _MOST_BYTES + 1)) > _MOST_BYTES
    ):
        return None
    try:
        rows = _READERS[name](path, content)
    except _UncertainError:
        return None
    names = [column.lower() for column in rows.schema.names]  # Spark's names have no case
    if len(set(names)) < len(names) or "" in names:
        return None
    if not rows.num_rows:
        raise no_rows(path)
    return rows.combine_chunks().to_batches()[0]


def _csv_rows(path: Path, content: bytes) -> pa.Table:
    mark = separator(path, content)
    text = _text(content, _ODD_CSV)
    header_line, *lines = (line for line in text.split("\n") if line.strip(_JAVA_BLANKS))
    if header_line in lines:  # Spark skips such a line for the types, not for the rows
        raise _UncertainError
    header, *rows = (_values(line, mark) for line in (header_line, *lines))
    columns = []
    for i in range(len(header)):
        texts = [row[i] or None if i < len(row) else None for row in rows]
        kinds = frozenset(map(_kind_of_text, {text for text in texts if text is not None}))
        if "time" in kinds and len(kinds) > 1:  # Spark may take 2024 for a time
            raise _UncertainError
        arrow_type = _TYPES.get(kinds, pa.string())
        read = _READ[arrow_type]
        columns.append(pa.array([None if text is None else read(text) for text in texts], arrow_type))
    is_row = [len(row) == len(header) for row in rows]
    broken_lines = [None if is_whole else line for is_whole, line in zip(is_row, lines, strict=True)]
    table = pa.table(columns, header)
    counts = count_numbers(table.filter(pa.array(is_row, pa.bool_())).slice(0, _COUNTED_ROWS))
    return table.cast(mark_numbers(table.schema, counts)).append_column(CORRUPT, pa.array(broken_lines, pa.string()))


_READ: Final[Mapping[pa.DataType, Callable[[str], Any]]] = {
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): lambda text: text.lower() == "true",
    pa.date32(): lambda _: None,  # no role takes times: the kind of the column says enough
    pa.string(): str,
}


def _text(content: bytes, odd: re.Pattern[str]) -> str:
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if odd.search(text):
        raise _UncertainError
    return text


def _values(line: str, mark: str) -> list[str]:
    """Return the values in a line; quotes stand around values alone."""
    if '"' not in line:
        return line.split(mark)
    value = f'(?:"([^"]*)"|([^"{mark}]*))'
    if not re.fullmatch(f"{value}(?:[{mark}]{value})*", line):
        raise _UncertainError
    return [quoted or plain for quoted, plain in re.findall(f"(?:^|[{mark}]){value}", line)]


def _kind_of_text(text: str) -> str:
    """Return the kind of a value in a CSV file."""
    match = _VALUE.fullmatch(text)
    kind = None if match is None else match.lastgroup
    if kind == "time":
        try:
            datetime.fromisoformat(text)
        except ValueError:
            kind = None
    # Spark makes decimals of whole numbers such as 1.5e1.
    if kind == "real" and text.strip() == text and Decimal(text).as_tuple().exponent == 0:
        kind = None
    if kind is None:
        raise _UncertainError
    return kind


def _json_rows(_path: DataPath, content: bytes) -> pa.Table:
    lines = (line for line in _text(content, _ODD_JSON).split("\n") if line.strip(" \t"))
    try:
        records = [json.loads(line, object_pairs_hook=_record, parse_constant=float) for line in lines]
    except (ValueError, RecursionError) as error:
        raise _UncertainError from error
    if not all(isinstance(record, dict) for record in records):
        raise _UncertainError
    names = set(chain.from_iterable(records))
    columns = {}
    for name in sorted(names, key=lambda name: name.encode("utf-16-be")):  # as Java sorts
        values = [record.get(name) for record in records]
        kinds = frozenset(_kind_of_json(value) for value in values if value is not None)
        if kinds not in _TYPES or name == CORRUPT:
            raise _UncertainError
        is_real = kinds & {"real", "numbers"}
        columns[name] = pa.array(map(_with_floats, values) if is_real else values, _TYPES[kinds])
    return pa.table(columns)


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise _UncertainError  # a name occurs twice
    return record


def _with_floats(value: Any) -> Any:
    """Return a number as a float: Arrow makes none of a large integer."""
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if isinstance(value, int) else value


def _kind_of_json(value: Any) -> str:
    """Return the kind of a value in JSON."""
    if isinstance(value, list):
        kinds = {_kind_of_json(item) for item in value if item is not None}
        if kinds <= {"whole", "real"}:
            return "numbers" if kinds else "no_numbers"
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "whole"
    if isinstance(value, float) and math.isfinite(value):
        return "real"
    if isinstance(value, str):
        return "text"
    raise _UncertainError


_READERS: Final[Mapping[SourceFormat, Callable[[Path, bytes], pa.Table]]] = {
    "csv": _csv_rows,
    "json_lines": _json_rows,
}
