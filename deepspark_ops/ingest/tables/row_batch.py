"""One batch of a table's rows as arrays: features, labels, hashes, and which rows cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepspark_ops.ingest.files.untyped_rows import CORRUPT, NO_RECORD, is_text
from deepspark_ops.ingest.records import MAX_LABEL
from deepspark_ops.ingest.selection.row_hash import Hashes, combined, hash_rows, mixed
from deepspark_ops.ingest.selection.splits import (
    UNKNOWN_WORD,
    ListedRows,
    split_of_word,
    splits_of_hashes,
    unknown_word,
)
from deepspark_ops.ingest.tables.columns import (
    Column,
    Flags,
    TableRoles,
    arrays,
    hashes_of,
    is_null,
    numbers,
    texts,
)
from deepspark_ops.shards.manifest import SPLITS, SplitName
from deepspark_ops.shards.table_columns import MissingRule

_SHOWN = 60
_PART_BITS = 40
"""A row's number within its part of the table; the part's number stands above it."""


@dataclass(frozen=True)
class RowRecipe:
    """The options by which tasks read rows; the driver sends the recipe to each task.

    Attributes:
        roles: Roles of the columns.
        widths: Numbers in a row of each feature column.
        missing: Rule for missing features.
        label_kind: ``auto`` takes every number.
        n_classes: Upper bound of labels; None without a bound.
        class_names: Names of text labels in label order; empty: each task numbers the names in its rows.
        shares: Split -> share of the rows, of ``split_shares``.
        seed: Decides split and order.
        shuffle: Order rows by hash; else in the order of the source.
        split: Split of all rows; None: the rows are split.
        listed: Splits of ids; None without a list.
    """

    roles: TableRoles
    widths: tuple[int, ...]
    missing: MissingRule
    label_kind: Literal["auto", "class", "value"]
    n_classes: int | None
    class_names: tuple[str, ...]
    shares: Mapping[SplitName, float]
    seed: int
    shuffle: bool
    split: SplitName | None = None
    listed: ListedRows | None = None

    @property
    def dtype(self) -> str:
        """Type of the features in the table."""
        return "float64" if self.roles.is_wide else "float32"

    @property
    def n_features(self) -> int:
        """D, the numbers in a row."""
        return sum(self.widths)

    def columns(self) -> list[Column]:
        """Return the column of each of the D numbers."""
        columns = zip(self.roles.features, self.widths, strict=True)
        return [column for column, width in columns for _ in range(width)]


class ClassNames:
    """Numbers for text labels: those of an option, or in the order of a task's rows."""

    def __init__(self, names: Sequence[str]) -> None:
        """Start with names in label order; if the list is not empty, all other names are unknown."""
        self._numbers = {name: number for number, name in enumerate(names)}
        self._is_fixed = bool(names)

    @property
    def names(self) -> list[str]:
        """Names in the order of the numbers."""
        return list(self._numbers)

    def numbers(self, column: pa.Array) -> npt.NDArray[np.float64]:
        """Return the (n,) number of each row's name: -1 for an unknown name, NaN for a missing name."""
        coded = texts(column).dictionary_encode()
        batch_names = coded.dictionary.to_pylist()
        if not self._is_fixed:
            for name in batch_names:
                self._numbers.setdefault(name, len(self._numbers))
        numbers = np.array([self._numbers.get(name, -1) for name in batch_names] or [-1], np.float64)
        places_of = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(is_null(column), np.nan, numbers[places_of])


@dataclass
class Rejects:
    """Rows that cannot be used: all are counted, the first rows are named.

    Attributes:
        count: Number of all such rows.
        named: (row in its part of the table, its id or "", reason) of the first rows.
    """

    count: int = 0
    named: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[int, str, str]], count: int, most: int) -> None:
        """Count rows and name some."""
        self.count += count
        self.named += rows[: max(0, most - len(self.named))]


@dataclass(frozen=True)
class Rows:
    """Usable rows of a batch, one entry each in all arrays.

    Attributes:
        position: Row's number in its part of the table.
        key: Decides the place in the dataset.
        content: Hash of the features.
        name: Hash of the id, or of the whole row where there is none.
        state: Hash of all that is kept.
        label: (n, L).
        features: (n, D); NaN where a value is missing.
        weight: None without.
        group: Whole numbers or texts as bytes; None without.
        id: Likewise.
        split: The rows' splits, places in ``SPLITS``; ``OUTSIDE`` for a row that a list leaves out.
    """

    position: npt.NDArray[np.int64]
    key: Hashes
    content: Hashes
    name: Hashes
    state: Hashes
    label: npt.NDArray[np.float64]
    features: npt.NDArray[np.floating]
    weight: npt.NDArray[np.float32] | None
    group: npt.NDArray[Any] | None
    id: npt.NDArray[Any] | None
    split: npt.NDArray[np.int8]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.position)

    def chosen(self, which: Flags) -> Rows:
        """Return some rows."""
        if which.all():
            return self
        held: dict[str, Any] = {name: None if held is None else held[which] for name, held in vars(self).items()}
        return Rows(**held)


def read_rows(
    batch: pa.RecordBatch, recipe: RowRecipe, names: ClassNames, *, part: int, first: int
) -> tuple[Rows, Rejects]:
    """Return the usable rows of a batch, and the others.

    ``names`` takes the labels that are text; ``first`` is the number of the batch's first row in its part.
    """
    checks = _Checks(batch.num_rows)
    if CORRUPT in batch.schema.names:
        checks.refuse(~is_null(batch.column(CORRUPT)), NO_RECORD)
    features = _features(batch, recipe, checks)
    label = np.stack([_label(batch, column, recipe, names, checks) for column in recipe.roles.labels], axis=1)
    weight = _weight(batch, recipe.roles.weight, checks)
    row_id = _held(batch, recipe.roles.id, checks)
    group = _held(batch, recipe.roles.group, checks)

    content = hash_rows(features)
    parts = [content, _label_hashes(batch, recipe.roles.labels, label)]
    ids = None if recipe.roles.id is None else hashes_of(batch.column(recipe.roles.id.name))
    digest = combined(*parts, *([] if ids is None else [ids]))
    owner = ids if ids is not None else digest
    further = [] if weight is None else [hash_rows(weight[:, None])]
    if recipe.roles.group is not None:
        owner = hashes_of(batch.column(recipe.roles.group.name))
        further.append(owner)
    state = combined(digest, *further) if further else digest
    position = np.arange(first, first + batch.num_rows, dtype=np.int64)
    in_order = position.astype(np.uint64) + np.uint64(part << _PART_BITS)
    split = _splits(batch, owner, recipe, checks)
    if recipe.listed is not None and ids is not None:
        split = recipe.listed.splits_of(ids)
    rows = Rows(
        position=position,
        key=mixed(digest, recipe.seed + 1) if recipe.shuffle else in_order,
        content=content,
        name=state if ids is None else ids,
        state=state,
        label=label,
        features=features,
        weight=weight,
        group=group,
        id=row_id,
        split=split,
    )
    return rows.chosen(~checks.is_bad), checks.rejects(position, batch, recipe.roles.id)


def _label_hashes(batch: pa.RecordBatch, columns: Sequence[Column], label: npt.NDArray[np.float64]) -> Hashes:
    """Return the hashes of labels. A text's hash is the text's, since each task numbers names in another order."""
    return hashes_of(batch.column(columns[0].name)) if columns[0].kind == "text" else hash_rows(label)


def _splits(batch: pa.RecordBatch, owner: Hashes, recipe: RowRecipe, checks: _Checks) -> npt.NDArray[np.int8]:
    if recipe.split is not None:
        return np.full(len(owner), SPLITS.index(recipe.split), np.int8)
    column = recipe.roles.split
    if column is not None:
        coded = texts(batch.column(column.name)).fill_null("").dictionary_encode()
        words = [str(word).strip() for word in coded.dictionary.to_pylist()]
        codes = np.array([split_of_word(word) for word in words], np.int8)
        codes_of_rows = coded.indices.to_numpy(zero_copy_only=False)
        for code_index in np.flatnonzero(codes == UNKNOWN_WORD).tolist():
            checks.refuse(codes_of_rows == code_index, unknown_word(column.name, words[code_index]))
        return np.asarray(codes[codes_of_rows], np.int8)
    return splits_of_hashes(mixed(owner, recipe.seed), recipe.shares)


class _Checks:
    """Collects the rows of a batch that cannot be used, with the first reason of each row."""

    def __init__(self, n_rows: int) -> None:
        self.is_bad = np.zeros(n_rows, bool)
        self._reasons: dict[int, str] = {}

    def refuse(self, which: Flags, reason: str, values: npt.NDArray[Any] | list[Any] | None = None) -> None:
        fresh = which & ~self.is_bad
        if not fresh.any():
            return
        for row in np.flatnonzero(fresh).tolist():
            value = "" if values is None else values[row]
            shown = value[:_SHOWN] if isinstance(value, str) else f"{value:.10g}"
            self._reasons[row] = reason.replace("{value}", shown)
        self.is_bad |= fresh

    def rejects(self, position: npt.NDArray[np.int64], batch: pa.RecordBatch, row_id: Column | None) -> Rejects:
        rejects = Rejects()
        rows = sorted(self._reasons)
        ids = [""] * len(rows)
        if row_id is not None and rows:
            ids = [str(text or "") for text in texts(batch.column(row_id.name)).take(pa.array(rows)).to_pylist()]
        named = [(int(position[row]), text, self._reasons[row]) for row, text in zip(rows, ids, strict=True)]
        rejects.add(named, len(rows), len(rows))
        return rejects


def _features(batch: pa.RecordBatch, recipe: RowRecipe, checks: _Checks) -> npt.NDArray[np.floating]:
    columns, dtype = recipe.roles.features, np.dtype(recipe.dtype)
    if all(column.kind != "numbers" for column in columns):
        values = _matrix(batch, columns, dtype)
    else:
        parts = []
        for column, width in zip(columns, recipe.widths, strict=True):
            if column.kind == "numbers":
                held, is_bad = arrays(batch.column(column.name), width, dtype)
                checks.refuse(is_bad, f'column "{column.name}": no array of {width:,} numbers, as the first row has')
            else:
                held = numbers(batch.column(column.name), dtype)[:, None]
            parts.append(held)
        values = np.concatenate(parts, axis=1)
    if not np.isfinite(values).all():
        _check_values(values, batch, recipe, checks)
    return values


def _matrix(batch: pa.RecordBatch, columns: Sequence[Column], dtype: np.dtype[Any]) -> npt.NDArray[np.floating]:
    """Return plain columns side by side; Arrow's own loop is several times as fast as a column at a time."""
    value_type = pa.from_numpy_dtype(dtype)
    held = []
    for column in columns:
        values = batch.column(column.name)
        held.append(values if values.type == value_type else pa.array(numbers(values, dtype)))
    tensor = pa.RecordBatch.from_arrays(held, names=[str(i) for i in range(len(held))])
    return np.asarray(tensor.to_tensor(null_to_nan=True, row_major=True).to_numpy())


def _check_values(values: npt.NDArray[np.floating], batch: pa.RecordBatch, recipe: RowRecipe, checks: _Checks) -> None:
    """Refuse the rows with infinite numbers, and on request with missing numbers."""
    names = [column.name for column in recipe.columns()]
    is_infinite = np.isinf(values)
    for index in np.flatnonzero(is_infinite.any(axis=0)).tolist():
        _refuse_infinite(is_infinite[:, index], f'column "{names[index]}":', batch.column(names[index]), checks)
    if recipe.missing == "drop-row":
        is_missing = np.isnan(values)
        for index in np.flatnonzero(is_missing.any(axis=0)).tolist():
            checks.refuse(is_missing[:, index], f'column "{names[index]}": the value is missing')


def _refuse_infinite(is_infinite: Flags, subject: str, column: pa.Array, checks: _Checks) -> None:
    """Refuse rows without a finite number in a column; the reason shows a text."""
    held = texts(column).to_pylist() if is_text(column.type) else None
    shown = "" if held is None else ', the text is "{value}"'
    checks.refuse(is_infinite, f"{subject} no finite number{shown}", held)


def _label(
    batch: pa.RecordBatch, column: Column, recipe: RowRecipe, names: ClassNames, checks: _Checks
) -> npt.NDArray[np.float64]:
    values = batch.column(column.name)
    if column.kind == "text":
        label = names.numbers(values)
        checks.refuse(np.isnan(label), f'label "{column.name}" is missing')
        if (is_unknown := label < 0).any():
            reason = f'class "{{value}}" is not among the {len(names.names):,} classes'
            checks.refuse(is_unknown, reason, values.to_pylist())
        return np.where(checks.is_bad, 0.0, label)
    label = numbers(values, np.float64)
    checks.refuse(np.isnan(label), f'label "{column.name}" is missing')
    _refuse_infinite(np.isinf(label), f'label "{column.name}":', values, checks)
    is_classes = recipe.label_kind == "class" or (recipe.label_kind == "auto" and recipe.n_classes is not None)
    if is_classes and len(recipe.roles.labels) == 1:
        is_whole = label == np.floor(label)
        checks.refuse(~is_whole, f'label "{column.name}" is {{value}}, which is no class number', label)
        most = recipe.n_classes if recipe.n_classes is not None else MAX_LABEL
        checks.refuse((label < 0) | (label >= most), f"label {{value}} is outside [0, {most})", label)
    return label


def _weight(batch: pa.RecordBatch, column: Column | None, checks: _Checks) -> npt.NDArray[np.float32] | None:
    if column is None:
        return None
    weight = numbers(batch.column(column.name), np.float32)
    checks.refuse(np.isnan(weight), f'weight "{column.name}" is missing')
    checks.refuse(
        ~np.isnan(weight) & ~((weight >= 0) & np.isfinite(weight)), f'weight "{column.name}" is {{value}}', weight
    )
    return np.asarray(weight, np.float32)


def _held(batch: pa.RecordBatch, column: Column | None, checks: _Checks) -> npt.NDArray[Any] | None:
    """Return the whole numbers or texts that a shard keeps beside a sample."""
    if column is None:
        return None
    values = batch.column(column.name)
    checks.refuse(is_null(values), f'column "{column.name}" is missing')
    if column.kind == "whole":
        return np.asarray(values.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False))
    held = texts(values).fill_null("").cast(pa.binary()).to_numpy(zero_copy_only=False)
    return np.asarray(held).astype("S") if len(held) else np.zeros(0, "S1")
