"""Columns of Arrow's batches as arrays of numpy: what Spark and readers of files hand over."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepspark_ops.ingest.selection.row_hash import Hashes, hash_texts
from deepspark_ops.ingest.tables.columns import Column, Kind

Flags = npt.NDArray[np.bool_]
OTHER_TYPE = pa.struct([])
"""Stands for a type that no role of a column takes."""
BAD_TEXT = np.inf
"""Stands for a text that is no number: rows with infinite features cannot be used, and say so."""


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of a table."""
    return [_column(field.name, field.type) for field in schema]


def _column(name: str, found: pa.DataType) -> Column:
    kind = _kind(found)
    item = found.value_type if kind == "numbers" else found
    return Column(name, kind, kind in ("whole", "real", "numbers") and _is_wide(item))


def _kind(found: pa.DataType) -> Kind:
    tests: dict[Kind, Any] = {
        "flag": pa.types.is_boolean,
        "whole": pa.types.is_integer,
        "real": lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
        "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
        "bytes": lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _holds_bytes(kind),
        "numbers": _is_numbers,
        "time": pa.types.is_temporal,
        "empty": pa.types.is_null,
    }
    return next((kind for kind, is_of in tests.items() if is_of(found)), "other")


def _holds_bytes(found: pa.DataType) -> bool:
    """Whether it is a struct of an image's bytes and its path, as libraries of data sets write images."""
    if not pa.types.is_struct(found):
        return False
    place = found.get_field_index("bytes")
    return bool(place >= 0 and pa.types.is_binary(found.field(place).type))


def _is_numbers(found: pa.DataType) -> bool:
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    return bool(is_list and _kind(found.value_type) in ("whole", "real", "flag"))


def _is_wide(found: pa.DataType) -> bool:
    if pa.types.is_boolean(found):
        return False
    return bool(pa.types.is_decimal(found) or found.bit_width > (32 if pa.types.is_floating(found) else 16))


def numbers(column: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return (n,) numbers; NaN where there is none, infinite for a text that is no number."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parsed(column)
    wanted = pa.from_numpy_dtype(np.dtype(dtype))
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.uint8())
    with np.errstate(over="ignore"):
        found = pc.cast(column, wanted, safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype)


def _parsed(texts: pa.Array) -> pa.Array:
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:  # Arrow does not say which, so this batch is read text by text
        return pa.array([None if text is None else _number(text) for text in texts.to_pylist()], pa.float64())


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return BAD_TEXT


def arrays(column: pa.Array, width: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Flags]:
    """Return (n, width) numbers of a column of arrays, and which rows have an array of another length, or none."""
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    is_bad = np.asarray(lengths != width)
    usable = column.filter(pa.array(~is_bad)) if is_bad.any() else column
    values = numbers(usable.flatten(), dtype).reshape(-1, width)
    if not is_bad.any():
        return values, is_bad
    out = np.full((len(column), width), np.nan, dtype)
    out[~is_bad] = values
    return out, is_bad


def texts(column: pa.Array) -> pa.Array:
    """Return a column's values as text: 7 and "7" are the same."""
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def hashes_of(column: pa.Array) -> Hashes:
    """Return the (n,) hashes of a column's values as text; of a missing one that of the empty text."""
    held = pc.fill_null(texts(column), "")
    _, offsets, content = held.buffers()
    if content is None:
        return hash_texts(np.zeros(len(held) + 1, np.int32), np.zeros(0, np.uint8))
    ends = np.frombuffer(offsets, np.int32)[held.offset : held.offset + len(held) + 1]
    return hash_texts(ends, np.frombuffer(content, np.uint8))


def is_null(column: pa.Array) -> Flags:
    """Return which rows hold nothing, or NaN."""
    return np.asarray(pc.fill_null(pc.is_null(column, nan_is_null=True), True).to_numpy(zero_copy_only=False), bool)
