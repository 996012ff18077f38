"""The columns of a table: kinds, roles by options or by names and kinds, and Arrow's columns as arrays of numpy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepspark_ops.config.ingest import SourceConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, is_text, numbers_share, parsed
from deepspark_ops.ingest.selection.row_hash import Hashes, hash_texts

Kind = Literal["whole", "real", "flag", "text", "bytes", "numbers", "time", "empty", "other"]
KINDS: Final[dict[Kind, str]] = {
    "whole": "whole numbers",
    "real": "numbers",
    "flag": "true or false",
    "text": "text",
    "bytes": "bytes",
    "numbers": "arrays of numbers",
    "time": "dates or times",
    "empty": "no value",
    "other": "values of another type",
}
NUMBERS: Final[frozenset[Kind]] = frozenset({"whole", "real", "flag"})
"""Kinds of a column with a number in each row."""
_FEATURES: Final[frozenset[Kind]] = NUMBERS | {"numbers"}
_LABELS: Final[frozenset[Kind]] = NUMBERS | {"text"}
LABEL_NAMES: Final = ("label", "labels", "class", "target", "y", "category", "class_id", "class_name")
"""What a column of labels is called where no option names it; the first that is there."""
IMAGE_NAMES: Final = ("image", "img", "image_bytes", "content", "bytes", "jpeg", "jpg", "png", "data")
"""Likewise of encoded images, if their column holds bytes."""
ID_NAMES: Final = ("id",)
Flags = npt.NDArray[np.bool_]
_DECIMAL_COMMA: Final = "SELECT *, double(replace({name}, ',', '.')) AS {name}_number FROM source"
"""A query that makes numbers of a column with decimal commas."""
_LABELS_SHARE: Final = 0.95
"""Of numbers among labels: with more words the labels are names, such as 0 to 9 and other."""
_DECIMAL: Final = re.compile(r"[+-]?\d+[.,]\d+")
_SHOWN = 12


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: As the table has it.
        kind: What it holds.
        is_wide: Whether float32 cannot hold its numbers (double, 32 or 64 bit integers, decimals).
        numbers_share: Share of numbers among the values of a column of text in a file without types, else 0.
    """

    name: str
    kind: Kind
    is_wide: bool = False
    numbers_share: float = 0.0

    def of_numbers(self, least_share: float = 0.9) -> Column:
        """Return the column, as one of numbers if a text has this share of numbers; a row with a word is then bad."""
        return Column(self.name, "real", is_wide=True) if self.numbers_share >= least_share else self


@dataclass(frozen=True)
class TableRoles:
    """The roles of a table's columns.

    Attributes:
        features: Columns of numbers or arrays, in their order; none for a table of images.
        labels: One, or several of numbers.
        image: Column of encoded images or their paths; None for a table of features.
        id: Column that names rows; None without.
        weight: Column of samples' weights; None without.
        group: Column whose equal values stay on one side of the split; None without.
        split: Column that says train, validation or test; None without.
        left_out: Columns that are used for nothing.
    """

    features: tuple[Column, ...]
    labels: tuple[Column, ...]
    image: Column | None = None
    id: Column | None = None
    weight: Column | None = None
    group: Column | None = None
    split: Column | None = None
    left_out: tuple[Column, ...] = ()

    @property
    def is_wide(self) -> bool:
        """Whether features are kept in float64 until they are standardised."""
        return any(column.is_wide for column in self.features)

    def used(self) -> tuple[Column, ...]:
        """Return every column that is read, once."""
        further = (self.image, self.id, self.weight, self.group, self.split)
        found = (*self.features, *self.labels, *(column for column in further if column is not None))
        return tuple({column.name: column for column in found}.values())


def choose_roles(config: SourceConfig, columns: Sequence[Column]) -> TableRoles:
    """Return what each column is used for.

    Args:
        config: Its options name columns; what they do not name is found by type and usual name.
        columns: Of the table.

    Raises:
        ConfigError: A column is not there, or cannot be what it is named for.
    """
    image = _image(config, columns)
    labels = _labels(config, columns)
    weight = named_column(columns, "weight_column", config.weight_column, {"whole", "real"})
    group = named_column(columns, "group_column", config.group_column, {"whole", "real", "text", "flag"})
    split = named_column(columns, "split_column", config.split_column, {"text"})
    row_id = named_column(columns, "id_column", config.id_column, {"whole", "text"})
    if row_id is None:
        row_id = first_column(columns, ID_NAMES, {"whole", "text"}, excluded=labels)
    reserved_names = {column.name for column in (*labels, image, weight, group, row_id, split) if column is not None}
    features: tuple[Column, ...] = ()
    if image is None:
        features = _features(config, columns, reserved_names)
    used = reserved_names | {column.name for column in features}
    left_out = tuple(column for column in columns if column.name not in used)
    return TableRoles(features, labels, image, row_id, weight, group, split, left_out)


def choose_names(patterns: str, names: Sequence[str], usual: Sequence[str] = ()) -> list[str]:
    """Return the columns that a list of patterns chooses, each once, in the order of the patterns.

    Args:
        patterns: With commas: ``age``, ``f*`` (``*``, ``?`` and ``[0-9]``), ``first..last`` in the table's order, and
            ``!id*``, which takes columns away again.
        names: Of the table's columns.
        usual: Columns that are chosen without patterns; a list that begins by taking away takes away from them.

    Raises:
        ConfigError: One chooses nothing.

    Example:
        >>> choose_names("b..d,f*,!f2", ["a", "b", "c", "d", "f1", "f2"])
        ['b', 'c', 'd', 'f1']
        >>> choose_names("!b", ["a", "b", "c"], ["a", "b"])
        ['a']
    """
    begins_by_taking_away = patterns.strip().startswith("!") and patterns.partition(",")[0].strip() not in names
    chosen = dict.fromkeys(usual if begins_by_taking_away else ())
    for pattern in (part.strip() for part in patterns.split(",") if part.strip()):
        if pattern.startswith("!") and pattern not in names:
            for name in _matching(pattern[1:], names):
                chosen.pop(name, None)
        else:
            chosen.update(dict.fromkeys(_matching(pattern, names)))
    return list(chosen)


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    first, dots, last = pattern.partition("..")
    if pattern in names:
        return [pattern]
    if dots and first in names and last in names:
        begin, end = names.index(first), names.index(last)
        if begin > end:
            msg = f"feature_columns: {pattern}: {first} stands after {last} in the table; turn them round"
            raise ConfigError(msg)
        return list(names[begin : end + 1])
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        absent = next((end for end in (first, last) if dots and end not in names), pattern)
        raise ConfigError(_absent("feature_columns", absent, names))
    return matches


def _absent(option: str, name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, 1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f'{option}: the table has no column "{name}"{hint} It has {_listed(names)}'.replace('" It', '"; it')


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def first_column(
    columns: Sequence[Column], names: Iterable[str], kinds: AbstractSet[Kind], excluded: Sequence[Column]
) -> Column | None:
    """Return the first column of a usual name, upper or lower case, and of a kind."""
    of_name = {column.name.lower(): column for column in reversed(columns) if column.kind in kinds}
    return next((of_name[name] for name in names if name in of_name and of_name[name] not in excluded), None)


def named_column(columns: Sequence[Column], option: str, name: str | None, kinds: AbstractSet[Kind]) -> Column | None:
    """Return the column that an option names; None if the option names no column.

    Raises:
        ConfigError: The table has no such column, or the column is of another kind.
    """
    if name is None:
        return None
    named = next((column for column in columns if column.name == name), None)
    if named is None:
        raise ConfigError(_absent(option, name, [column.name for column in columns]))
    if named.kind not in kinds:
        raise ConfigError(_unfit(option, named, kinds))
    return named


def _unfit(option: str, column: Column, kinds: AbstractSet[Kind]) -> str:
    allowed = ", ".join(KINDS[kind] for kind in KINDS if kind in kinds)
    return f'{option}: column "{column.name}" holds {KINDS[column.kind]}; allowed: {allowed}'


def _image(config: SourceConfig, columns: Sequence[Column]) -> Column | None:
    if config.image_column is not None:
        if config.feature_columns is not None:
            msg = (
                f"image_column={config.image_column}, feature_columns={config.feature_columns}: a sample is an image"
                " or a row of features; give one of them"
            )
            raise ConfigError(msg)
        return named_column(columns, "image_column", config.image_column, {"bytes", "text"})
    return None if config.feature_columns is not None else first_column(columns, IMAGE_NAMES, {"bytes"}, ())


def _labels(config: SourceConfig, columns: Sequence[Column]) -> tuple[Column, ...]:
    names = [column.name for column in columns]
    if config.label_column is None:
        found = first_column(columns, LABEL_NAMES, _LABELS, ())
        if found is None and (unfit := first_column(columns, LABEL_NAMES, set(KINDS), ())) is not None:
            raise ConfigError(_unfit("label_column", unfit, _LABELS))
        if found is None:
            msg = (
                f"label_column: no column has a usual name ({', '.join(LABEL_NAMES[:5])}); name that of the labels:"
                f" the table has {_listed(names)}"
            )
            raise ConfigError(msg)
        return (found.of_numbers(_LABELS_SHARE),)
    chosen = [part.strip() for part in config.label_column.split(",") if part.strip()]
    if config.label_column in names:
        chosen = [config.label_column]
    allowed = _LABELS - {"text"} if len(chosen) > 1 else _LABELS
    of_numbers = [column.of_numbers(_LABELS_SHARE) for column in columns]
    labels = [named_column(of_numbers, "label_column", name, allowed) for name in dict.fromkeys(chosen)]
    if not labels:
        msg = f"label_column={config.label_column!r} names no column; the table has {_listed(names)}"
        raise ConfigError(msg)
    return tuple(column for column in labels if column is not None)


def _features(config: SourceConfig, columns: Sequence[Column], reserved_names: set[str]) -> tuple[Column, ...]:
    of_name = {column.name: column.of_numbers() for column in columns}
    usual = [name for name, column in of_name.items() if column.kind in _FEATURES and name not in reserved_names]
    if config.feature_columns is None:
        chosen = tuple(of_name[name] for name in usual)
    else:
        chosen = tuple(of_name[name] for name in choose_names(config.feature_columns, list(of_name), usual))
        _refuse_others(config.feature_columns, chosen, reserved_names)
    if not chosen:
        held = ", ".join(f"{column.name} ({KINDS[column.kind]})" for column in columns[:_SHOWN])
        text = next(
            (column.name for column in columns if column.kind == "text" and column.name not in reserved_names), ""
        )
        remedy = f"; name text that holds numbers, or {query_for_numbers(text)}" if text else ""
        msg = f"feature_columns: no column is left for features; the table has {held}{remedy}"
        raise ConfigError(msg)
    return chosen


def _refuse_others(patterns: str, columns: Sequence[Column], reserved_names: set[str]) -> None:
    """Refuse what is no number, and what a net would learn its labels from; text is read as numbers."""
    for column in columns:
        if column.kind not in _FEATURES | {"text"}:
            msg = f'feature_columns: column "{column.name}" holds {KINDS[column.kind]}, and features are numbers'
            raise ConfigError(msg)
        if column.name in reserved_names:
            msg = (
                f'feature_columns={patterns}: column "{column.name}" is also label, weight, group or id; leave it out:'
                f" {patterns},!{column.name}"
            )
            raise ConfigError(msg)


def query_for_numbers(name: str) -> str:
    """Return what a message says to do with a column of text that should be numbers."""
    return f"make numbers of it by a query: {_DECIMAL_COMMA.format(name=name)}"


def refuse_decimal_texts(label: str, class_names: Sequence[str]) -> None:
    """Refuse classes whose names are numbers with a decimal comma, or point: each value would be a class.

    Raises:
        ConfigError: Nearly all names are such numbers.
    """
    decimals = [name for name in class_names if _DECIMAL.fullmatch(name)]
    if decimals and len(decimals) >= _LABELS_SHARE * len(class_names):
        msg = (
            f'label_column: "{label}" holds text such as {decimals[0]}, each a class of its own; '
            f"{query_for_numbers(label)}, and give label_column={label}_number; label_kind=class takes names of classes"
        )
        raise ConfigError(msg)


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of a table, without the column of broken lines."""
    return [_column(field) for field in schema if field.name != CORRUPT]


def _column(field: pa.Field) -> Column:
    kind = _kind(field.type)
    item = field.type.value_type if kind == "numbers" else field.type
    return Column(field.name, kind, kind in ("whole", "real", "numbers") and _is_wide(item), numbers_share(field))


def _kind(arrow_type: pa.DataType) -> Kind:
    tests: dict[Kind, Any] = {
        "flag": pa.types.is_boolean,
        "whole": pa.types.is_integer,
        "real": lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
        "text": is_text,
        "bytes": lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or holds_bytes(kind),
        "numbers": _is_numbers,
        "time": pa.types.is_temporal,
        "empty": pa.types.is_null,
    }
    return next((kind for kind, is_of in tests.items() if is_of(arrow_type)), "other")


def holds_bytes(arrow_type: pa.DataType) -> bool:
    """Return whether a type is a struct of an image's bytes and path, as libraries of data sets write images."""
    if not pa.types.is_struct(arrow_type):
        return False
    index = arrow_type.get_field_index("bytes")
    return bool(index >= 0 and pa.types.is_binary(arrow_type.field(index).type))


def _is_numbers(arrow_type: pa.DataType) -> bool:
    return is_list(arrow_type) and _kind(arrow_type.value_type) in ("whole", "real", "flag")


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether a type is one of arrays."""
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_of(arrow_type) for is_of in tests)


def _is_wide(arrow_type: pa.DataType) -> bool:
    if pa.types.is_boolean(arrow_type):
        return False
    return bool(
        pa.types.is_decimal(arrow_type) or arrow_type.bit_width > (32 if pa.types.is_floating(arrow_type) else 16)
    )


def numbers(column: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return (n,) numbers: NaN for a missing value, infinity for a text that is no number."""
    if is_text(column.type):
        column = parsed(column)
    value_type = pa.from_numpy_dtype(np.dtype(dtype))
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.uint8())
    with np.errstate(over="ignore"):
        values = pc.cast(column, value_type, safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype)


def arrays(column: pa.Array, width: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Flags]:
    """Return (n, width) numbers of a column of arrays, and flags of rows without an array of this length."""
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
    """Return the (n,) hashes of a column's values as text; a missing value has the hash of the empty text."""
    held = pc.fill_null(texts(column), "")
    _, offsets, content = held.buffers()
    if content is None:
        return hash_texts(np.zeros(len(held) + 1, np.int32), np.zeros(0, np.uint8))
    ends = np.frombuffer(offsets, np.int32)[held.offset : held.offset + len(held) + 1]
    return hash_texts(ends, np.frombuffer(content, np.uint8))


def is_null(column: pa.Array) -> Flags:
    """Return flags of rows without a value, or with NaN."""
    return np.asarray(pc.fill_null(pc.is_null(column, nan_is_null=True), True).to_numpy(zero_copy_only=False), bool)
