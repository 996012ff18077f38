"""The driver's part of a table's ingestion: from what tasks saw of the rows to shards, and from shards to manifests."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.commit import (
    HDF5_LIST_NAME,
    REJECTED_NAME,
    check_findings,
    check_rejections,
    remove_shard,
    remove_unlisted,
    write_rejected,
)
from deepspark_ops.ingest.dataset_findings import find_thin_classes
from deepspark_ops.ingest.findings import WARNINGS_NAME, Finding, Findings, ordered, write_warnings
from deepspark_ops.ingest.named_classes import sorted_classes
from deepspark_ops.ingest.plan import MAX_UNASKED_CLASSES, Recipe, shard_name
from deepspark_ops.ingest.records import Positions, Rejection
from deepspark_ops.ingest.selection.splits import split_rule
from deepspark_ops.ingest.shard_assignment import asked_shards
from deepspark_ops.ingest.tables.column_sums import ColumnSums, merged
from deepspark_ops.ingest.tables.columns import TableRoles
from deepspark_ops.ingest.tables.known_files import (
    KnownFiles,
    SeenFiles,
    SeenRows,
    SeenSource,
    StoredRun,
    write_seen_files,
)
from deepspark_ops.ingest.tables.listed_rows import ListedRows, find_in_list, read_listed_rows
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import PartSummary, Run, write_chosen
from deepspark_ops.ingest.tables.selection.duplicate_rows import find_duplicate_rows
from deepspark_ops.ingest.tables.selection.row_choice import choose_rows, require_classes
from deepspark_ops.ingest.tables.selection.split_rows import CODES_SUFFIX, SplitRows, all_rows
from deepspark_ops.ingest.tables.table_shards import (
    TableShardResult,
    TableShards,
    TableShardTask,
    chosen_sums,
    cut_runs,
    rows_per_shard,
)
from deepspark_ops.ingest.versions.base import free_number, labels_stay
from deepspark_ops.ingest.versions.kept_versions import files_of_versions, keep_version, version_digest
from deepspark_ops.ingest.versions.row_changes import RowChange, TableBase, columns_stay, find_row_changes
from deepspark_ops.ingest.versions.stored_shard import files_of, link_files
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.hdf5_shard import write_hdf5_list
from deepspark_ops.shards.manifest import (
    SPLITS,
    DatasetManifest,
    FileRecord,
    ShardRecord,
    SplitName,
    sha256_of_file,
    write_manifest,
)
from deepspark_ops.shards.row_records import rows_path
from deepspark_ops.shards.table_columns import FeatureColumn, LabelKind, TableColumns
from deepspark_ops.stores.store_path import StorePath
from deepspark_ops.stores.writing import local_output, remove_tree

FEW_CLASSES = 1000
"""Whole labels below this, from 0, are classes unless label_kind says otherwise."""
_DRIFT = 0.1
"""A mean that has moved by more deviations than this, or a deviation that has changed by more, is told."""
_log = logging.getLogger(__name__)
_NO_ROWS = np.empty(0, np.int64)
_DIGITS = 12
"""Of mean and deviation: the last ones depend on the order in which parts were added up."""

Parts = Mapping[SplitName, Sequence[PartSummary]]
"""What tasks saw of each source: the training source, which is split, and the test source if there is one."""


@dataclass(frozen=True)
class TablePlan:
    """What is known once all rows were read.

    Attributes:
        tasks: Every shard of every split.
        shared: What they share: the columns, and how many classes there are.
        class_names: In label order, may be empty.
        n_records: Rows read, those that cannot be used included.
        counts: Rows left out or repeated by wish, by split.
        n_rejected: Rows that cannot be used, by split.
        rejected: Those of them that are named.
        findings: What there is to say of the rows, by split.
        base: The dataset that is gone on from; None where all is written.
        changes: What is taken over of it, by split; empty without.
        carried_counts: Labels of what is taken over, (n_classes,) by split.
        shift: Largest distance of a feature's mean from that of the base, in its deviations; 0 without a base.
        seen: What there is to keep of the table's files; None where all of it is read every time.
    """

    tasks: tuple[TableShardTask, ...]
    shared: TableShards
    class_names: tuple[str, ...]
    n_records: int
    counts: Mapping[SplitName, Mapping[str, int]]
    n_rejected: Mapping[SplitName, int]
    rejected: Mapping[SplitName, tuple[Rejection, ...]]
    findings: Mapping[SplitName, Findings]
    base: TableBase | None = None
    changes: Mapping[SplitName, RowChange] = field(default_factory=dict)
    carried_counts: Mapping[SplitName, npt.NDArray[np.int64]] = field(default_factory=dict)
    shift: float = 0.0
    seen: SeenFiles | None = None

    @property
    def version(self) -> int:
        """Of the dataset that is made."""
        return 1 if self.base is None else self.base.version

    def splits(self) -> list[SplitName]:
        """Return the splits that have tasks or take something over, train first."""
        there = {task.split for task in self.tasks}
        there |= {split for split, change in self.changes.items() if change.carried}
        return [split for split in SPLITS if split in there]


def row_recipe(
    config: IngestConfig, roles: TableRoles, widths: Sequence[int], class_names: Sequence[str] = ()
) -> RowRecipe:
    """Return how a table's rows are read.

    Args:
        config: What is asked for.
        roles: What each column is used for.
        widths: Numbers in a row of each feature column.
        class_names: In label order, where a file gives them.

    Raises:
        ConfigError: Options that do not go together.
    """
    label = roles.labels[0]
    if given := _image_options(config):
        msg = f"{', '.join(given)}: for images, and {config.source} is a table of features; name an image_column"
        raise ConfigError(msg)
    if config.split_list is not None and roles.id is None:
        msg = (
            f"split_list={config.split_list}: a row of {config.source} has no name that a list could have; give"
            " id_column, or split_column if the table itself says it"
        )
        raise ConfigError(msg)
    if config.label_kind == "value" or len(roles.labels) > 1:
        require_classes(config, 0)
    if config.n_classes is not None and class_names and len(class_names) != config.n_classes:
        msg = f"n_classes={config.n_classes}, but {config.class_names} names {len(class_names)}; give one of them"
        raise ConfigError(msg)
    if config.label_kind == "class" and len(roles.labels) > 1:
        msg = "label_kind=class: several label columns are values, 0 and 1 for classes that do not exclude each other"
        raise ConfigError(msg)
    if config.label_kind == "value" and label.kind == "text":
        msg = f'label_kind=value: label "{label.name}" holds text, which is the name of a class'
        raise ConfigError(msg)
    return RowRecipe(
        roles=roles,
        widths=tuple(widths),
        missing=config.missing,
        label_kind=config.label_kind,
        n_classes=config.n_classes if config.n_classes is not None else len(class_names) or None,
        class_names=tuple(class_names) if label.kind == "text" else (),
        test_fraction=config.test_fraction if config.test_source is None else 0.0,
        validation_fraction=config.validation_fraction if config.validation_source is None else 0.0,
        seed=config.seed,
        shuffle=config.shuffle,
        listed=None if config.split_list is None else read_listed_rows(config.split_list),
    )


def _image_options(config: IngestConfig) -> list[str]:
    names = (
        "encoded",
        "resize_height",
        "resize_width",
        "gray",
        "max_pixel",
        "scaled_decoding",
        "decode_mib",
        "root_folder",
    )
    values = {name: getattr(config, name) for name in names}
    return [f"{name}={value}" for name, value in values.items() if value != IngestConfig.model_fields[name].default]


def text_classes(parts: Sequence[PartSummary]) -> tuple[str, ...]:
    """Return the classes of the training source in the order of their labels, where labels are text."""
    return sorted_classes(name for part in parts for name in part.class_names)


def content_digest(parts: Parts) -> dict[SplitName, str]:
    """Return a digest of each source's rows, in whatever order and by however many tasks they were read."""
    found: dict[SplitName, str] = {}
    for split, summaries in parts.items():
        total = sum(part.digest for part in summaries) % 2**64
        text = f"{total:016x} of {sum(part.n_rows for part in summaries)} rows"
        found[split] = hashlib.sha256(text.encode()).hexdigest()
    return found


Spread = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Does work for each item, maybe on many machines, and returns the results in the items' order."""


@dataclass(frozen=True)
class WhatWasRead:
    """What is known of a table's rows.

    Attributes:
        rows: How the training source was read.
        parts: What tasks saw of each source, now or for the dataset that is gone on from.
        names: Of the classes, in label order, if they are given or labels are text.
    """

    rows: RowRecipe
    parts: Parts
    names: tuple[str, ...] = ()


class MoreToRead(Exception):
    """Rows that were not read have to be, since they go into other shards.

    Attributes:
        files: Of each source, the files that have them.
    """

    def __init__(self, why: str, files: Mapping[SplitName, Collection[int]]) -> None:
        """Name the files."""
        super().__init__(why)
        self.files = files


def one_by_one(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Do the work here: the ``Spread`` of a table that is small."""
    return [work(item) for item in items]


def plan_read_table(
    config: IngestConfig,
    recipe: Recipe,
    found: WhatWasRead,
    folder: Path,
    spread: Spread,
    base: TableBase | None,
    now: Mapping[SplitName, SeenSource] | None,
    known: KnownFiles | None,
    read: Callable[[KnownFiles | None], WhatWasRead],
) -> TablePlan:
    """Plan as ``plan_table`` does, reading again with further files where that finds that they have to be read.

    Raises:
        ConfigError: As ``plan_table``.
        DataError: Likewise.
    """
    while True:
        try:
            return plan_table(
                config, recipe, found.rows, found.parts, folder, found.names, spread, base, now=now, known=known
            )
        except MoreToRead as more:
            assert known is not None
            known = known.without(more.files)
            n_more = "all" if known is None else f"{sum(map(len, more.files.values())):,} more"
            _log.info("ingest: %s files are read: %s", n_more, more)
            found = read(known)


def plan_table(
    config: IngestConfig,
    recipe: Recipe,
    rows: RowRecipe,
    parts: Parts,
    folder: Path,
    class_names: Sequence[str] = (),
    spread: Spread = one_by_one,
    base: TableBase | None = None,
    now: Mapping[SplitName, SeenSource] | None = None,
    known: KnownFiles | None = None,
) -> TablePlan:
    """Decide labels, which rows are taken, standardisation and shards.

    Args:
        config: What is asked for.
        recipe: Its digest becomes part of the shards' names.
        rows: How the training source was read.
        parts: What tasks saw.
        folder: Where the runs are.
        class_names: In label order, if they are given or labels are text.
        spread: Reads the rows once more where only some are taken, since mean and deviation are theirs.
        base: Dataset whose rows are taken over where they have not changed. Its mean and deviation stay.
        now: The files of each source, where ``parts`` are of a file each.
        known: Those of them that were not read: the base's rows stand for theirs, and ``parts`` has what it kept.

    Raises:
        MoreToRead: Files that were not read have to be.
        ConfigError: Options leave a split empty, or classes are too many, or there are none to be balanced.
        DataError: No usable row, or a missing value that is refused.
    """
    every = [part for summaries in parts.values() for part in summaries]
    rejected, n_rejected = _rejections(parts)
    check_rejections(
        config, [item for items in rejected.values() for item in items], _n_rows(every), sum(n_rejected.values())
    )
    if rows.missing == "refuse":
        _refuse_missing(rows, parts)
    n_classes = _n_classes(config, rows, every, class_names)
    has_codes = rows.roles.labels[0].kind == "text" and not rows.class_names
    if has_codes:
        _write_codes(every, class_names, folder)
    runs = {split: [run for part in every for run in part.runs if run.split == split] for split in SPLITS}
    stored = {split: [] if known is None else known.stored(split) for split in SPLITS}
    held = {
        split: all_rows(folder, runs[split], stored[split], has_codes=has_codes)
        for split in SPLITS
        if runs[split] or any(len(run.rows) for run in stored[split]) or split in _asked(rows, parts)
    }
    listed = Findings() if rows.listed is None else _list_findings(rows.listed, held, every)
    choice = choose_rows(config, rows, folder, held, n_classes=n_classes)
    for split, chosen in choice.splits.items():
        _require_rows(config, split, chosen.n_rows, held[split].n_rows, rejected)
    if choice.are_all:
        sums = merged((part.sums for part in every), rows.n_features)
    else:
        sums = _chosen_sums(choice.splits, rows, folder, spread)
    columns = _columns(config, rows, sums, "class" if n_classes else "value")
    base = _base_that_fits(base, columns, class_names, n_classes)
    changes = _changes(base, choice.splits)
    base = base if changes else None
    added = {
        split: np.arange(chosen.n_rows) if base is None else changes[split].added
        for split, chosen in choice.splits.items()
    }
    written = {split: chosen.taken(added[split]) for split, chosen in choice.splits.items()}
    if known is not None:
        _require_read(known, written, class_names, base)
    are_chosen = base is not None or not choice.are_all
    if base is not None:
        _note_chosen(written, folder)
    tasks, order = _tasks(config, recipe, written, rows.n_features, base)
    seen = None
    if now is not None and choice.are_all:
        places = {
            split: np.concatenate([changes[split].places if changes else _NO_ROWS, added[split][order[split]]])
            for split in written
        }
        seen = SeenFiles(_with_parts(now, parts), _rows_of_files(choice.splits, every, places))
    findings = find_duplicate_rows(folder, rows, choice.splits)
    for split, found in choice.findings.items():
        findings[split].merge(found)
    findings["train"].merge(_column_findings(columns, sums))
    findings["train"].merge(listed)
    shift = 0.0
    if base is not None:
        columns = base.columns
        drift, shift = _drift(columns, sums)
        findings["train"].merge(drift)
    return TablePlan(
        tasks=tuple(tasks),
        shared=TableShards(folder, rows, columns, n_classes, has_codes, are_chosen=are_chosen),
        class_names=tuple(class_names),
        n_records=_n_rows(every),
        counts=choice.counts,
        n_rejected=n_rejected,
        rejected=rejected,
        findings=findings,
        base=base,
        changes=changes,
        carried_counts={
            split: np.bincount(choice.splits[split].label()[change.places].astype(np.int64), minlength=n_classes)
            for split, change in changes.items()
            if n_classes
        },
        shift=shift,
        seen=seen,
    )


def _require_read(
    known: KnownFiles,
    written: Mapping[SplitName, SplitRows],
    class_names: Sequence[str],
    base: TableBase | None,
) -> None:
    """Raise ``MoreToRead`` unless every row that is written was read."""
    others = {source: range(len(seen.names)) for source, seen in known.now.items()}
    if base is None:
        msg = "all is written anew"
        raise MoreToRead(msg, others)
    if tuple(class_names) != base.manifests["train"].class_names and len(known.now) > 1:
        msg = "there are other classes, by which rows of the other sources may be good now that were not"
        raise MoreToRead(msg, others)
    wanted: dict[SplitName, set[int]] = {}
    for split, chosen in written.items():
        for run, taken in zip(chosen.runs, chosen.rows, strict=True):
            if isinstance(run, StoredRun) and len(taken):
                wanted.setdefault(known.source_of(split), set()).update(np.unique(run.files[taken]).tolist())
    if wanted:
        msg = "small shards, or shards of which much has gone, are written anew"
        raise MoreToRead(msg, wanted)


def _with_parts(now: Mapping[SplitName, SeenSource], parts: Parts) -> dict[SplitName, SeenSource]:
    return {source: replace(files, parts=tuple(parts[source])) for source, files in now.items()}


def _rows_of_files(
    splits: Mapping[SplitName, SplitRows], parts: Sequence[PartSummary], places: Mapping[SplitName, Positions]
) -> dict[SplitName, SeenRows]:
    """Return what is kept of the rows of each split, in the order of its shards."""
    file_of = {run.file: part.file for part in parts for run in part.runs}
    return {
        split: SeenRows(
            files=chosen.files(file_of)[places[split]],
            contents=chosen.column("content")[places[split]],
            labels=chosen.label()[places[split]],
        )
        for split, chosen in splits.items()
    }


def _base_that_fits(
    base: TableBase | None, columns: TableColumns, class_names: Sequence[str], n_classes: int
) -> TableBase | None:
    if base is None or not columns_stay(base, columns):
        return None
    return base if labels_stay(base.manifests["train"], class_names, n_classes) else None


def _changes(base: TableBase | None, splits: Mapping[SplitName, SplitRows]) -> dict[SplitName, RowChange]:
    """Return what has changed in each split; nothing where no shard stays, so that all is written anew."""
    if base is None:
        return {}
    changes = {
        split: find_row_changes(base, split, chosen.column("name"), chosen.column("state"))
        for split, chosen in splits.items()
    }
    return changes if changes["train"].carried else {}


def _drift(columns: TableColumns, sums: ColumnSums) -> tuple[Findings, float]:
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


def _chosen_sums(splits: Mapping[SplitName, SplitRows], rows: RowRecipe, folder: Path, spread: Spread) -> ColumnSums:
    """Note which rows are taken, and return the sums of the features of the training rows among them."""
    _note_chosen(splits, folder)
    train = splits["train"]
    runs = zip(train.runs, train.rows, strict=True)
    items = [(run, len(taken)) for run, taken in runs if isinstance(run, Run) and len(taken)]

    def work(item: tuple[Run, int]) -> ColumnSums:
        return chosen_sums(folder, rows, *item)

    return merged(spread(work, items), rows.n_features)


def _note_chosen(splits: Mapping[SplitName, SplitRows], folder: Path) -> None:
    for chosen in splits.values():
        for run, taken in zip(chosen.runs, chosen.rows, strict=True):
            if isinstance(run, Run):
                write_chosen(folder, run, taken)


def _tasks(
    config: IngestConfig,
    recipe: Recipe,
    splits: Mapping[SplitName, SplitRows],
    n_features: int,
    base: TableBase | None,
) -> tuple[list[TableShardTask], dict[SplitName, Positions]]:
    """Return the tasks, and of each split the places of the rows that are written, in the order of its shards."""
    tasks: list[TableShardTask] = []
    order: dict[SplitName, Positions] = {}
    for split, chosen in splits.items():
        order[split] = _NO_ROWS
        if not chosen.n_rows:
            continue
        starts = np.cumsum([0, *(len(taken) for taken in chosen.rows)])
        of_shards = []
        keys = [held.key[taken] for held, taken in zip(chosen.keys, chosen.rows, strict=True)]
        n_rows = chosen.n_rows
        most = rows_per_shard(config.samples_per_shard if config.shards is None else n_rows, n_features)
        least = 1 if config.shards is None else asked_shards(n_rows, most, config.shards, where=split)
        first = 0
        if base is not None or config.full:
            first = free_number(config.output, split, None if base is None else base.manifests.get(split))
        for number, ranges in enumerate(cut_runs(keys, most, least), start=first):
            found = zip(chosen.runs, ranges, strict=True)
            pieces = [(keys[i], starts[i], start, stop) for i, (start, stop) in enumerate(ranges)]
            places = np.concatenate([np.arange(first + start, first + stop) for _, first, start, stop in pieces])
            of_keys = np.concatenate([of_run[start:stop] for of_run, _, start, stop in pieces])
            of_shards.append(places[np.argsort(of_keys, kind="stable")])
            tasks.append(
                TableShardTask(
                    split=split,
                    number=number,
                    path=DatasetPaths(config.output).split(split) / shard_name(config, recipe, split, number),
                    pieces=tuple(
                        (run, start, stop) for run, (start, stop) in found if isinstance(run, Run) and stop > start
                    ),
                )
            )
        order[split] = np.concatenate(of_shards)
    return tasks, order


def _n_rows(parts: Sequence[PartSummary]) -> int:
    return sum(part.n_rows for part in parts)


def _rejections(parts: Parts) -> tuple[dict[SplitName, tuple[Rejection, ...]], dict[SplitName, int]]:
    named: dict[SplitName, tuple[Rejection, ...]] = {}
    for split, summaries in parts.items():
        found, before = [], 0
        for part in summaries:
            for row, name, reason in part.rejects.named:
                found.append(Rejection(before + row, name or f"row {before + row:,}", None, reason))
            before += part.n_rows
        named[split] = tuple(found)
    return named, {split: sum(part.rejects.count for part in summaries) for split, summaries in parts.items()}


def _refuse_missing(rows: RowRecipe, parts: Parts) -> None:
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


def _widths(rows: RowRecipe) -> list[tuple[FeatureColumn, int]]:
    return [
        (FeatureColumn(name=column.name, width=width), width)
        for column, width in zip(rows.roles.features, rows.widths, strict=True)
    ]


def _columns(config: IngestConfig, rows: RowRecipe, sums: ColumnSums, kind: LabelKind) -> TableColumns:
    roles = rows.roles
    if (lacking := np.flatnonzero(sums.count == 0)).size and sums.n_missing.any():
        names = [column.name for column, width in _widths(rows) for _ in range(width)]
        msg = f'column "{names[int(lacking[0])]}" has no value in any training row; take it out of feature_columns'
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


def _n_classes(config: IngestConfig, rows: RowRecipe, parts: Sequence[PartSummary], names: Sequence[str]) -> int:
    """Return how many classes there are; 0 where labels are values."""
    largest = max((part.largest_label for part in parts), default=-np.inf)
    smallest = min((part.smallest_label for part in parts), default=np.inf)
    kind = rows.label_kind
    if len(rows.roles.labels) > 1:
        return 0
    if kind == "auto":
        are_few = smallest >= 0 and largest < FEW_CLASSES and all(part.are_whole for part in parts)
        kind = "class" if rows.n_classes is not None or names or are_few else "value"
    if kind == "value":
        return 0
    if rows.n_classes is not None or names:
        return rows.n_classes or len(names)
    if largest >= MAX_UNASKED_CLASSES:
        msg = f"source={config.source}: the largest label is {largest:,.0f}; give n_classes, so that wrong labels show"
        raise ConfigError(msg)
    return max(1, int(largest) + 1) if np.isfinite(largest) else 1


def _write_codes(parts: Sequence[PartSummary], class_names: Sequence[str], folder: Path) -> None:
    """Write beside each part's rows which class each of its numbers is."""
    places = {name: float(place) for place, name in enumerate(class_names)}
    for part in parts:
        codes = np.array([places[name] for name in part.class_names], np.float64)
        for file in {run.file for run in part.runs}:
            np.save((folder / file).with_suffix(CODES_SUFFIX), codes)


def _list_findings(listed: ListedRows, held: Mapping[SplitName, SplitRows], parts: Sequence[PartSummary]) -> Findings:
    names = np.concatenate([np.empty(0, np.uint64), *(rows.column("name") for rows in held.values())])
    outside, before = [], 0
    for part in parts:
        outside += [(before + row, name) for row, name, _ in part.outside.named]
        before += part.n_rows
    return find_in_list(listed, names, outside, sum(part.outside.count for part in parts))


def _asked(rows: RowRecipe, parts: Parts) -> set[SplitName]:
    """Return the splits that must have rows; those of a column or a list are the ones that it names."""
    shares: dict[SplitName, float] = {"test": rows.test_fraction, "validation": rows.validation_fraction}
    if rows.listed is not None:
        return {*parts, *rows.listed.asked()}
    by_share = {split for split, share in shares.items() if share and rows.roles.split is None}
    return {"train", *parts, *by_share}


def _require_rows(
    config: IngestConfig,
    split: SplitName,
    n_rows: int,
    n_before: int,
    rejected: Mapping[SplitName, Sequence[Rejection]],
) -> None:
    if n_rows:
        return
    if n_before:
        given = ", ".join(
            f"{name}={value}" for name in ("limit", "deduplicate_across", "balance") if (value := getattr(config, name))
        )
        msg = f"{given} leaves the {split} set empty, which had {n_before:,} rows; ask for less"
        raise ConfigError(msg)
    if config.split_list is not None:
        msg = f"split_list={config.split_list} leaves the {split} set empty: it names no usable row for it"
        raise ConfigError(msg)
    first = next((f"; first: {item.name}: {item.reason}" for items in rejected.values() for item in items), "")
    own = {"validation": config.validation_source, "test": config.test_source}.get(split)
    if first or own is not None:
        msg = f"no usable row is left for the {split} set{first}"
        raise DataError(msg)
    if config.split_column is not None:
        msg = f"split_column={config.split_column} leaves the {split} set empty: no row has that word there"
        raise ConfigError(msg)
    option = "validation_fraction" if split == "validation" else "test_fraction"
    msg = (
        f"{option}={getattr(config, option)} leaves the {split} set empty: each row's side is a hash of its group, id"
        f" or content; change {option} or seed, or give {option.removesuffix('_fraction')}_source"
    )
    raise ConfigError(msg)


def _column_findings(columns: TableColumns, sums: ColumnSums) -> Findings:
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


def commit_table(
    config: IngestConfig, recipe: Recipe, plan: TablePlan, results: Sequence[TableShardResult]
) -> dict[SplitName, DatasetManifest]:
    """Write what the manifests name, then the manifests, then remove what no manifest names any more.

    Raises:
        DataError: A shard could not be written, or ``strict`` refuses what was found. Shards written by this ingestion
            are removed; a dataset committed before stays as it was.
    """
    findings = dict(plan.findings)
    try:
        if errors := [result.error for result in results if result.error is not None]:
            more = f" (and {len(errors) - 1} more shards)" if len(errors) > 1 else ""
            raise DataError(errors[0] + more)  # noqa: TRY301 - as for a finding below, what was written goes
        if plan.shared.n_classes:
            findings["train"].merge(find_thin_classes(_histogram(plan, results, "train"), plan.class_names))
        check_findings(config, findings)
    except DataError:
        discard_table(plan)
        raise
    for name in (REJECTED_NAME, WARNINGS_NAME):
        (config.output / name).unlink(missing_ok=True)
    if plan.base is not None and plan.base.folder == config.output:
        keep_version(config.output)
    previous = None if plan.base is None else version_digest(plan.base.folder)
    manifests = {}
    seen = None if plan.seen is None else _write_seen(config, recipe, plan.seen)
    for split in plan.splits():
        manifest = _manifest(config, recipe, plan, results, split).model_copy(
            update={
                "previous": previous,
                "source_files": seen if split == "train" else None,
                "warnings": ordered(findings[split].counts),
                "warnings_file": WARNINGS_NAME if findings[split].counts else None,
            }
        )
        _commit_split(config, plan, manifest, findings[split])
        manifests[split] = manifest
    paths = DatasetPaths(config.output)
    for of_images in (paths.mean(), paths.contact_sheet):
        of_images.unlink(missing_ok=True)
    for split in set(SPLITS) - set(manifests):
        remove_tree(paths.split(split))
    return manifests


def _write_seen(config: IngestConfig, recipe: Recipe, seen: SeenFiles) -> FileRecord:
    """Write what is kept of the table's files beside the training set's shards."""
    target = DatasetPaths(config.output).split("train") / f"files-{recipe.sha256[:8]}.npz"
    with local_output(target) as path:
        write_seen_files(path, seen)
        return FileRecord(file=target.name, sha256=sha256_of_file(path))


def discard_table(plan: TablePlan) -> None:
    """Remove the shards of an ingestion that is given up."""
    for task in plan.tasks:
        remove_shard(task.path)
        remove_shard(rows_path(task.path))


def _histogram(plan: TablePlan, results: Sequence[TableShardResult], split: SplitName) -> npt.NDArray[np.int64]:
    """Return the labels of a split, (n_classes,), of what stays and what was written."""
    counts = [np.array(result.label_counts, np.int64) for result in results if result.split == split]
    if split in plan.carried_counts:
        counts.append(plan.carried_counts[split])
    found: npt.NDArray[np.int64] = np.sum(counts, axis=0)
    return found


def _manifest(
    config: IngestConfig, recipe: Recipe, plan: TablePlan, results: Sequence[TableShardResult], split: SplitName
) -> DatasetManifest:
    """Return the manifest of a split without its warnings."""
    paths = {task.number: task.path for task in plan.tasks if task.split == split}
    carried = plan.changes[split].carried if split in plan.changes else ()
    shards = carried + tuple(
        ShardRecord(
            file=paths[result.number].name,
            sha256=result.sha256,
            n_samples=result.n_samples,
            n_bytes=result.n_bytes,
            rows=FileRecord(file=rows_path(paths[result.number]).name, sha256=result.rows_sha256),
            version=plan.version,
        )
        for result in sorted(results, key=lambda result: result.number)
        if result.split == split
    )
    rule = split_rule(config) if len(plan.splits()) > 1 else None
    return DatasetManifest(
        split=split,
        splits=tuple(plan.splits()),
        shard_format="hdf5",
        encoded=False,
        source=recipe.source(split),
        recipe_sha256=recipe.sha256,
        options=dict(recipe.options),
        version=plan.version,
        sample_shape=(plan.shared.columns.n_features,),
        n_samples=sum(shard.n_samples for shard in shards),
        n_classes=plan.shared.n_classes,
        class_names=plan.class_names,
        label_histogram=tuple(_histogram(plan, results, split).tolist()) if plan.shared.n_classes else (),
        mean_values=(),
        shards=shards,
        n_rejected=plan.n_rejected.get(split, 0),
        rejected_file=REJECTED_NAME if plan.rejected.get(split) else None,
        n_bytes=sum(shard.n_bytes for shard in shards),
        split_rule=rule and rule.model_copy(update={"by": "row_hash" if rule.by == "name_hash" else rule.by}),
        chosen=dict(plan.counts.get(split, {})),
        table=plan.shared.columns,
    )


def _commit_split(config: IngestConfig, plan: TablePlan, manifest: DatasetManifest, findings: Findings) -> None:
    split = manifest.split
    folder = DatasetPaths(config.output).split(split)
    if plan.base is not None and plan.base.folder != config.output:
        for shard in plan.changes[split].carried:
            link_files(DatasetPaths(plan.base.folder).split(split), files_of(shard), folder)
    if findings.counts:
        write_warnings(folder / WARNINGS_NAME, findings.named)
    if rejected := plan.rejected.get(split):
        write_rejected(folder / REJECTED_NAME, rejected)
    if not isinstance(folder, StorePath):  # Caffe reads local files
        write_hdf5_list(folder / HDF5_LIST_NAME, [folder / shard.file for shard in manifest.shards])
    write_manifest(folder, manifest)
    remove_unlisted(folder, manifest, in_use=files_of_versions(config.output, split))


def with_content(recipe: Recipe, digests: Mapping[SplitName, str]) -> Recipe:
    """Return a recipe whose sources are known by their rows, for a source without files to look at."""
    sources = {split: source.model_copy(update={"sha256": digests[split]}) for split, source in recipe.sources.items()}
    text = " ".join([recipe.sha256, *(source.sha256 for source in sources.values())])
    return replace(recipe, sources=sources, sha256=hashlib.sha256(text.encode()).hexdigest())
