"""Figures of a whole table from the summaries of its parts: classes, mean and deviation, bad rows, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.plan import count_classes
from deepspark_ops.ingest.records import Rejection, sorted_classes
from deepspark_ops.ingest.selection.splits import ListedRows, find_in_list
from deepspark_ops.ingest.tables.column_sums import ColumnSums, merged
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Parts, PartSummary, Run, Spread
from deepspark_ops.ingest.tables.split_rows import CODES_SUFFIX, SplitRows
from deepspark_ops.ingest.tables.table_shards import chosen_sums, note_chosen
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.shards.table_columns import FeatureColumn, LabelKind, TableColumns

_DRIFT = 0.1
"""A mean that has moved by more deviations than this, or a deviation that has changed by more, is told."""
_DIGITS = 12
"""Of mean and deviation: the last ones depend on the order in which parts were added up."""
FEW_CLASSES = 1000
"""Whole labels below this, from 0, are classes unless label_kind says otherwise."""


def refuse_missing(rows: RowRecipe, parts: Parts) -> None:
    """Refuse a row without a value, for ``missing=refuse``.

    Raises:
        DataError: The first such row, with its column.
    """
    for split, summaries in parts.items():
        n_earlier = 0
        for part in summaries:
            if part.first_missing is not None:
                row, index = part.first_missing
                name = rows.columns()[index].name
                msg = (
                    f'missing=refuse: column "{name}" has no value in row {n_earlier + row:,} of the {split} source'
                    " (rows count from 0); fill it, or allow it by missing=mean, zero or drop-row"
                )
                raise DataError(msg)
            n_earlier += part.n_rows


def sums_of_chosen(splits: Mapping[SplitName, SplitRows], rows: RowRecipe, folder: Path, spread: Spread) -> ColumnSums:
    """Write the numbers of the chosen rows, and return the sums of the chosen training rows."""
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
        columns = rows.columns()
        names = list(dict.fromkeys(columns[index].name for index in lacking.tolist()))
        without = ",".join([*filter(None, [config.feature_columns]), *(f"!{name}" for name in names)])
        shown = ", ".join(f'"{name}"' for name in names)
        msg = f"no training row has a value in column {shown}; leave it out: feature_columns={without}"
        raise DataError(msg)
    return TableColumns(
        features=tuple(
            FeatureColumn(name=column.name, width=width)
            for column, width in zip(roles.features, rows.widths, strict=True)
        ),
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
    """Return a finding per column with one value in all rows, and per column with missing values."""
    findings = Findings()
    names = columns.feature_names()
    for index in np.flatnonzero(sums.is_constant()).tolist():
        text = f"holds {sums.smallest[index]:.10g} in every training row; it teaches a net nothing"
        findings.add(Finding("constant_column", names[index], text))
    for index in np.flatnonzero(sums.n_missing).tolist():
        count = int(sums.n_missing[index])
        text = f"{count:,} training rows have no value; missing={columns.missing}"
        findings.add(Finding("missing_value", names[index], text), count)
    return findings


def value_findings(columns: TableColumns, parts: Sequence[PartSummary]) -> Findings:
    """Return a finding if all rows have one value as their label."""
    findings = Findings()
    smallest, largest = min(part.smallest_label for part in parts), max(part.largest_label for part in parts)
    if columns.label_kind == "value" and smallest == largest:
        name = ", ".join(columns.labels)
        findings.add(Finding("one_label", name, f"every row has {smallest:.10g}; a net has nothing to learn"))
    return findings


def find_drift(columns: TableColumns, sums: ColumnSums) -> tuple[Findings, float]:
    """Return a finding per drifted feature, and the largest shift of a mean in standard deviations."""
    findings = Findings()
    if not columns.is_standardized:
        return findings, 0.0
    mean, std = np.array(columns.mean), np.array(columns.std)
    shift = np.abs(sums.mean - mean) / std
    ratio = sums.std() / std
    names = columns.feature_names()
    is_far = (shift > _DRIFT) | (ratio > 1 + _DRIFT) | (ratio < 1 / (1 + _DRIFT))
    for index in np.flatnonzero(is_far).tolist():
        text = (
            f"is standardised by version 1's mean {mean[index]:.6g} and deviation {std[index]:.6g}; the mean is"
            f" {sums.mean[index]:.6g} now, {shift[index]:.2f} deviations away, and the deviation {ratio[index]:.2f}"
            " times as large; full computes them anew"
        )
        findings.add(Finding("drifted_column", names[index], text))
    return findings, float(shift.max(initial=0.0))


def text_classes(parts: Sequence[PartSummary]) -> tuple[str, ...]:
    """Return the classes of the training source in label order, where labels are text."""
    return sorted_classes(name for part in parts for name in part.class_names)


def count_classes_of_rows(
    config: IngestConfig, rows: RowRecipe, parts: Sequence[PartSummary], names: Sequence[str]
) -> int:
    """Return how many classes there are; 0 where labels are values."""
    largest = max((part.largest_label for part in parts), default=-np.inf)
    smallest = min((part.smallest_label for part in parts), default=np.inf)
    kind = rows.label_kind
    if len(rows.roles.labels) > 1:
        return 0
    if kind == "auto":
        are_few = smallest >= 0 and largest < FEW_CLASSES and all(part.are_whole for part in parts)
        kind = "class" if rows.n_classes is not None or names or are_few else "value"
    return 0 if kind == "value" else count_classes(config, rows.n_classes, names, largest)


def write_codes(parts: Sequence[PartSummary], class_names: Sequence[str], folder: Path) -> None:
    """Write a file per part with the class of each of the part's numbers."""
    numbers = {name: float(number) for number, name in enumerate(class_names)}
    for part in parts:
        codes = np.array([numbers[name] for name in part.class_names], np.float64)
        for file in {run.file for run in part.runs}:
            np.save((folder / file).with_suffix(CODES_SUFFIX), codes)


def named_rejections(parts: Parts) -> tuple[dict[SplitName, tuple[Rejection, ...]], dict[SplitName, int]]:
    """Return the rows of each source that cannot be used, as far as tasks name rows, and the number of all."""
    named: dict[SplitName, tuple[Rejection, ...]] = {}
    for split, summaries in parts.items():
        rejections, n_earlier = [], 0
        for part in summaries:
            for row, name, reason in part.rejects.named:
                rejections.append(Rejection(n_earlier + row, name or f"row {n_earlier + row:,}", None, reason))
            n_earlier += part.n_rows
        named[split] = tuple(rejections)
    return named, {split: sum(part.rejects.count for part in summaries) for split, summaries in parts.items()}


def list_findings(listed: ListedRows, held: Mapping[SplitName, SplitRows], parts: Sequence[PartSummary]) -> Findings:
    """Return the findings of a list of splits: entries without a row, and rows without an entry."""
    names = np.concatenate([np.empty(0, np.uint64), *(rows.column("name") for rows in held.values())])
    outside, n_earlier = [], 0
    for part in parts:
        outside += [(n_earlier + row, name) for row, name, _ in part.outside.named]
        n_earlier += part.n_rows
    return find_in_list(listed, names, outside, sum(part.outside.count for part in parts))


def asked_splits(rows: RowRecipe, parts: Parts) -> set[SplitName]:
    """Return the splits that must have rows: those with a source or a share, or in the list or column of splits."""
    if rows.listed is not None:
        return {*parts, *rows.listed.named_splits()}
    return {"train", *parts, *(rows.shares if rows.roles.split is None else ())}
