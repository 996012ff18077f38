"""The columns of a table's dataset: mean and deviation of the rows that are taken, and what there is to say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.tables.column_sums import ColumnSums, merged
from deepspark_ops.ingest.tables.planning.shard_tasks import note_chosen
from deepspark_ops.ingest.tables.planning.spread import Spread
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Parts, PartSummary, Run
from deepspark_ops.ingest.tables.split_rows import SplitRows
from deepspark_ops.ingest.tables.table_shards import chosen_sums
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.shards.table_columns import FeatureColumn, LabelKind, TableColumns

_DRIFT = 0.1
"""A mean that has moved by more deviations than this, or a deviation that has changed by more, is told."""
_DIGITS = 12
"""Of mean and deviation: the last ones depend on the order in which parts were added up."""


def _widths(rows: RowRecipe) -> list[tuple[FeatureColumn, int]]:
    return [
        (FeatureColumn(name=column.name, width=width), width)
        for column, width in zip(rows.roles.features, rows.widths, strict=True)
    ]


def refuse_missing(rows: RowRecipe, parts: Parts) -> None:
    """Refuse a source of which a row has no value where ``missing=refuse``.

    Raises:
        DataError: The first such row, with its column.
    """
    for split, summaries in parts.items():
        before = 0
        for part in summaries:
            if part.first_missing is not None:
                row, place = part.first_missing
                name = [column.name for column, width in _widths(rows) for _ in range(width)][place]
                msg = (
                    f'missing=refuse: column "{name}" has no value in row {before + row:,} of the {split} source (rows'
                    " count from 0); fill it, or allow it by missing=mean, zero or drop-row"
                )
                raise DataError(msg)
            before += part.n_rows


def sums_of_chosen(splits: Mapping[SplitName, SplitRows], rows: RowRecipe, folder: Path, spread: Spread) -> ColumnSums:
    """Note which rows are taken, and return the sums of the features of the training rows among them."""
    note_chosen(splits, folder)
    train = splits["train"]
    runs = zip(train.runs, train.rows, strict=True)
    items = [(run, len(taken)) for run, taken in runs if isinstance(run, Run) and len(taken)]

    def work(item: tuple[Run, int]) -> ColumnSums:
        return chosen_sums(folder, rows, *item)

    return merged(spread(work, items), rows.n_features)


def columns_of_table(config: IngestConfig, rows: RowRecipe, sums: ColumnSums, kind: LabelKind) -> TableColumns:
    """Return the columns of the dataset, with mean and deviation of the training rows.

    Raises:
        DataError: A column without any value.
    """
    roles = rows.roles
    if (lacking := np.flatnonzero(sums.count == 0)).size and sums.n_missing.any():
        of_place = [column.name for column, width in _widths(rows) for _ in range(width)]
        names = list(dict.fromkeys(of_place[place] for place in lacking.tolist()))
        without = ",".join([*filter(None, [config.feature_columns]), *(f"!{name}" for name in names)])
        shown = ", ".join(f'"{name}"' for name in names)
        msg = f"no training row has a value in column {shown}; leave it out: feature_columns={without}"
        raise DataError(msg)
    return TableColumns(
        features=tuple(column for column, _ in _widths(rows)),
        labels=tuple(column.name for column in roles.labels),
        label_kind=kind,
        weight=None if roles.weight is None else roles.weight.name,
        group=None if roles.group is None else roles.group.name,
        id=None if roles.id is None else roles.id.name,
        missing=rows.missing,
        is_standardized=config.standardize,
        mean=_rounded(sums.mean),
        std=_rounded(sums.std()),
    )


def _rounded(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, ...]:
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values.tolist())


def column_findings(columns: TableColumns, sums: ColumnSums) -> Findings:
    """Return what there is to say of columns: those that are the same in every row, and those with missing values."""
    found = Findings()
    names = columns.feature_names()
    for place in np.flatnonzero(sums.is_constant()).tolist():
        text = f"holds {sums.smallest[place]:.10g} in every training row; it teaches a net nothing"
        found.add(Finding("constant_column", names[place], text))
    for place in np.flatnonzero(sums.n_missing).tolist():
        count = int(sums.n_missing[place])
        text = f"{count:,} training rows have no value; missing={columns.missing}"
        found.add(Finding("missing_value", names[place], text), count)
    return found


def value_findings(columns: TableColumns, parts: Sequence[PartSummary]) -> Findings:
    """Return what there is to say of labels that are values: whether all rows have one value."""
    found = Findings()
    smallest, largest = min(part.smallest_label for part in parts), max(part.largest_label for part in parts)
    if columns.label_kind == "value" and smallest == largest:
        name = ", ".join(columns.labels)
        found.add(Finding("one_label", name, f"every row has {smallest:.10g}; a net has nothing to learn"))
    return found


def find_drift(columns: TableColumns, sums: ColumnSums) -> tuple[Findings, float]:
    """Return the features whose mean or deviation has moved from those that they are standardised by; the largest."""
    found = Findings()
    if not columns.is_standardized:
        return found, 0.0
    mean, std = np.array(columns.mean), np.array(columns.std)
    shift = np.abs(sums.mean - mean) / std
    ratio = sums.std() / std
    names = columns.feature_names()
    is_far = (shift > _DRIFT) | (ratio > 1 + _DRIFT) | (ratio < 1 / (1 + _DRIFT))
    for place in np.flatnonzero(is_far).tolist():
        text = (
            f"is standardised by version 1's mean {mean[place]:.6g} and deviation {std[place]:.6g}; the mean is"
            f" {sums.mean[place]:.6g} now, {shift[place]:.2f} deviations away, and the deviation {ratio[place]:.2f}"
            " times as large; full computes them anew"
        )
        found.add(Finding("drifted_column", names[place], text))
    return found, float(shift.max(initial=0.0))
