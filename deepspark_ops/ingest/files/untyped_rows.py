"""Rows of CSV and JSON lines, files without types: a word among a column's numbers costs its row alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

CORRUPT: Final = "_corrupt_record"
"""Spark's column for a line that is no record of the table."""
NO_RECORD: Final = "the line is no record of the table"
"""The error of such a line."""
BAD_TEXT: Final = np.inf
"""Stands for a text that is no number: rows with infinite features cannot be used, and say so."""
_MISSING: Final = pa.array(pyarrow.csv.ConvertOptions().null_values)
"""Words for a missing number, such as NA and null."""
_FLAGS: Final = {"true": 1, "false": 0}
_MARK: Final = b"deepspark.numbers_share"
NumberCounts = Mapping[str, tuple[int, int]]
"""Column -> numbers, and values that are not missing, in the first rows."""


def mark_numbers(schema: pa.Schema, counts: NumberCounts) -> pa.Schema:
    """Return the schema with the share of numbers among the values at columns of text.

    The file has no types: a bad word in one row makes a column of numbers one of text.
    """
    for name, (n_numbers, n_values) in counts.items():
        if n_values:
            index = schema.get_field_index(name)
            schema = schema.set(index, schema.field(index).with_metadata({_MARK: str(n_numbers / n_values)}))
    return schema


def numbers_share(field: pa.Field) -> float:
    """Return the share of numbers among the values of a column of text; 0 if the share is unknown."""
    return float((field.metadata or {}).get(_MARK, 0)) if is_text(field.type) else 0.0


def count_numbers(rows: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the counts of each column of text; ``rows``: the first rows."""
    counts = {}
    for field in rows.schema:
        if is_text(field.type):
            values = parsed(rows.column(field.name).combine_chunks()).to_numpy(zero_copy_only=False)
            counts[field.name] = (int(np.isfinite(values).sum()), int((~np.isnan(values)).sum()))
    return counts


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether a type is text."""
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def parsed(texts: pa.Array) -> pa.Array:
    """Return texts as float64: null for a missing value and its words, infinity for a text that is no number."""
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.is_in(texts, value_set=_MISSING.cast(texts.type)), pa.scalar(None, texts.type), texts)
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:  # Arrow does not say which, so this batch is read text by text
        return pa.array([None if text is None else _number(text) for text in texts.to_pylist()], pa.float64())


def _number(text: str) -> float:
    try:
        return float(_FLAGS.get(text.lower(), text))
    except ValueError:
        return BAD_TEXT


def skip_line(broken_lines: dict[int, str], line: pyarrow.csv.InvalidRow) -> Literal["skip"]:
    """Note a line of a CSV file with too few or too many values, by its row number from 0, for Arrow to skip."""
    broken_lines[line.number - 2] = line.text  # Arrow counts the header as 1
    return "skip"


def with_broken_lines(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, broken_lines: dict[int, str]
) -> Iterator[pa.RecordBatch]:
    """Yield a CSV file's rows with the column ``CORRUPT``, and a row without values for each line that Arrow skipped.

    Args:
        batches: Rows of the file, in order.
        schema: Columns of the rows.
        broken_lines: Lines that ``skip_line`` notes before ``batches`` yields the next row; emptied.
    """
    start = 0
    for batch in chain(batches, [pa.RecordBatch.from_pylist([], schema)]):
        stop = start + batch.num_rows
        texts = {}
        for number in sorted(broken_lines):
            if number <= stop:
                texts[number - start] = broken_lines.pop(number)
                stop += 1
        is_broken = np.zeros(stop - start, bool)
        is_broken[list(texts)] = True
        rows = batch.take(pa.array(np.cumsum(~is_broken) - 1, mask=is_broken)) if texts else batch
        yield rows.append_column(CORRUPT, pa.array(map(texts.get, range(len(is_broken))), pa.string()))
        start = stop
