"""From the summaries of a table's parts to the tasks that write the shards."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.commit import check_rejections
from deepspark_ops.ingest.files.table_files import no_rows
from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Findings
from deepspark_ops.ingest.plan import DatasetPlan, Recipe
from deepspark_ops.ingest.records import Positions, Rejection
from deepspark_ops.ingest.selection.choice import Choice, choose, limited, require_classes, takes_all
from deepspark_ops.ingest.selection.duplicates import find_duplicates
from deepspark_ops.ingest.tables.column_sums import ColumnSums, merged
from deepspark_ops.ingest.tables.known_files import (
    KnownFiles,
    SeenFiles,
    SeenRows,
    SeenSource,
    StoredRun,
    write_seen_files,
)
from deepspark_ops.ingest.tables.measured import (
    asked_splits,
    column_findings,
    columns_of_table,
    count_classes_of_rows,
    find_drift,
    list_findings,
    named_rejections,
    refuse_missing,
    sums_of_chosen,
    value_findings,
    write_codes,
)
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Parts, PartSummary, Spread, one_by_one
from deepspark_ops.ingest.tables.split_rows import SplitRows, all_rows
from deepspark_ops.ingest.tables.table_shards import (
    NO_ROWS,
    TableShards,
    TableShardTask,
    note_chosen,
    run_table_shard,
    shard_tasks,
)
from deepspark_ops.ingest.versions.base import Base, labels_stay
from deepspark_ops.ingest.versions.changes import Change, find_changes, positions_of
from deepspark_ops.shards.manifest import SPLITS, SplitName
from deepspark_ops.shards.row_records import RowRecords
from deepspark_ops.shards.table_columns import TableColumns

_log = logging.getLogger(__name__)
_MEASURED: Final = frozenset({"mean", "std"})
"""What the first version measured; everything else about the columns must be the same."""


def content_digest(parts: Parts) -> dict[SplitName, str]:
    """Return a digest of each source's rows that does not depend on order or number of tasks."""
    digests: dict[SplitName, str] = {}
    for split, summaries in parts.items():
        total = sum(part.digest for part in summaries) % 2**64
        text = f"{total:016x} of {sum(part.n_rows for part in summaries)} rows"
        digests[split] = hashlib.sha256(text.encode()).hexdigest()
    return digests


def with_content(recipe: Recipe, digests: Mapping[SplitName, str]) -> Recipe:
    """Return a recipe with digests of rows, for sources without files."""
    sources = {split: source.model_copy(update={"sha256": digests[split]}) for split, source in recipe.sources.items()}
    text = " ".join([recipe.sha256, *(source.sha256 for source in sources.values())])
    return replace(recipe, sources=sources, sha256=hashlib.sha256(text.encode()).hexdigest())


@dataclass(frozen=True)
class WhatWasRead:
    """The rows of a table after reading.

    Attributes:
        rows: Recipe of the training source.
        parts: Source -> summaries of its parts, of this ingestion or of the base.
        names: Names of the classes in label order, from an option or from text labels.
    """

    rows: RowRecipe
    parts: Parts
    names: tuple[str, ...] = ()


class MoreToRead(Exception):
    """Rows of files that were not read go into new shards.

    Attributes:
        files: Source -> numbers of the files with such rows.
    """

    def __init__(self, why: str, files: Mapping[SplitName, Collection[int]]) -> None:
        """Name the files."""
        super().__init__(why)
        self.files = files


def plan_read_table(
    config: IngestConfig,
    recipe: Recipe,
    read_rows: WhatWasRead,
    folder: Path,
    spread: Spread,
    base: Base[RowRecords] | None,
    now: Mapping[SplitName, SeenSource] | None,
    known_files: KnownFiles | None,
    read: Callable[[KnownFiles | None], WhatWasRead],
) -> DatasetPlan[TableShardTask]:
    """Return the plan of ``plan_table``, after reading further files if a plan needs rows of theirs.

    Raises:
        ConfigError: As ``plan_table``.
        DataError: Likewise.
    """
    while True:
        try:
            return plan_table(
                config,
                recipe,
                read_rows.rows,
                read_rows.parts,
                folder,
                read_rows.names,
                spread,
                base,
                now=now,
                known_files=known_files,
            )
        except MoreToRead as more:
            assert known_files is not None
            known_files = known_files.without(more.files)
            n_more = "all" if known_files is None else f"{sum(map(len, more.files.values())):,} more"
            _log.info("ingest: %s files are read: %s", n_more, more)
            read_rows = read(known_files)


def plan_table(
    config: IngestConfig,
    recipe: Recipe,
    rows: RowRecipe,
    parts: Parts,
    folder: Path,
    class_names: Sequence[str] = (),
    spread: Spread = one_by_one,
    base: Base[RowRecords] | None = None,
    now: Mapping[SplitName, SeenSource] | None = None,
    known_files: KnownFiles | None = None,
) -> DatasetPlan[TableShardTask]:
    """Return the plan of a table's dataset: labels, choice of rows, standardisation, shards.

    Args:
        config: What is asked for.
        recipe: Its digest becomes part of the shards' names.
        rows: Recipe of the training source.
        parts: Source -> summaries of its parts.
        folder: Scratch folder of the runs.
        class_names: Names in label order, from an option or from text labels.
        spread: Reads the rows once more where only some are taken, since mean and deviation are theirs.
        base: Dataset whose rows are taken over where they have not changed. Its mean and deviation stay.
        now: The files of each source, where ``parts`` are of a file each.
        known_files: Those of them that were not read: the base's rows stand for theirs, and ``parts`` has what it kept.

    Raises:
        MoreToRead: Files that were not read have to be.
        ConfigError: Options leave a split empty, or classes are too many, or there are none to be balanced.
        DataError: No usable row, or a missing value that is refused.
    """
    every = [part for summaries in parts.values() for part in summaries]
    rejected, n_rejected = _checked_rejections(config, parts, _n_rows(every))
    if rows.missing == "refuse":
        refuse_missing(rows, parts)
    n_classes = count_classes_of_rows(config, rows, every, class_names)
    has_codes = rows.roles.labels[0].kind == "text" and not rows.class_names
    if has_codes:
        write_codes(every, class_names, folder)
    runs = {split: [run for part in every for run in part.runs if run.split == split] for split in SPLITS}
    stored = {split: [] if known_files is None else known_files.stored(split) for split in SPLITS}
    held = {
        split: all_rows(folder, rows, runs[split], stored[split], has_codes=has_codes)
        for split in SPLITS
        if runs[split] or any(len(run.rows) for run in stored[split]) or split in asked_splits(rows, parts)
    }
    listed = Findings() if rows.listed is None else list_findings(rows.listed, held, every)
    choice = _choose_rows(config, held, n_classes, rejected)
    are_all = takes_all(config)
    if are_all:
        sums = merged((part.sums for part in every), rows.n_features)
    else:
        sums = sums_of_chosen(choice.splits, rows, folder, spread)
    columns = columns_of_table(config, rows, sums, "class" if n_classes else "value")
    base = _base_that_fits(base, columns, class_names, n_classes)
    changes = _changes(base, choice.splits)
    base = base if changes else None
    carried = {split: positions_of(change.carried) for split, change in changes.items()}
    added = {
        split: np.arange(len(chosen)) if base is None else changes[split].added
        for split, chosen in choice.splits.items()
    }
    written = {split: chosen.selected(added[split]) for split, chosen in choice.splits.items()}
    if known_files is not None:
        _require_read(known_files, written, class_names, base)
    are_chosen = base is not None or not are_all
    if base is not None:
        note_chosen(written, folder)
    tasks, order = shard_tasks(config, recipe, written, rows.n_features, base)
    seen_files = None
    if now is not None and are_all:
        positions = {
            split: np.concatenate([carried.get(split, NO_ROWS), added[split][order[split]]]) for split in written
        }
        seen_files = SeenFiles(_with_parts(now, parts), _rows_of_files(choice.splits, every, positions))
    findings = find_duplicates({split: chosen.once() for split, chosen in choice.splits.items()}, NAMED_OF_A_KIND)
    findings["train"].merge(column_findings(columns, sums))
    findings["train"].merge(value_findings(columns, every))
    findings["train"].merge(listed)
    if base is not None:
        columns = _columns_of(base)
        findings["train"].merge(_drift(config, columns, sums))
    shared = TableShards(folder, rows, columns, n_classes, has_codes, are_chosen=are_chosen)
    plan = DatasetPlan(
        tasks=tuple(tasks),
        run=partial(run_table_shard, shared=shared),
        sample_shape=(columns.n_features,),
        n_records=_n_rows(every),
        n_classes=n_classes,
        class_names=tuple(class_names),
        rejected=rejected,
        n_rejected=n_rejected,
        findings=findings,
        base=base,
        changes=changes,
        table=columns,
        write_files=None if seen_files is None else partial(write_seen_files, seen_files=seen_files),
    )
    return plan.counted(choice, written)


def _choose_rows(
    config: IngestConfig,
    held: Mapping[SplitName, SplitRows],
    n_classes: int,
    rejected: Mapping[SplitName, tuple[Rejection, ...]],
) -> Choice[SplitRows]:
    """Return the choice of rows; a limit holds for all splits of the training source together."""
    require_classes(config, n_classes)
    sources = {"validation": config.validation_source, "test": config.test_source}
    of_train = [split for split in held if sources.get(split) is None]
    parts = [held[split] for split in of_train]
    of_source = {split: rows for split, rows in held.items() if split not in of_train}
    limited_rows, counts = limited(config, {"train": SplitRows.joined(parts), **of_source}, has_classes=n_classes > 0)
    splits = {**limited_rows, **dict(zip(of_train, limited_rows["train"].cut(parts), strict=True))}
    n_before = {split: len(rows) for split, rows in held.items()}
    return choose(config, {split: splits[split] for split in held}, counts, n_before, rejected)


def _checked_rejections(
    config: IngestConfig, parts: Parts, n_rows: int
) -> tuple[dict[SplitName, tuple[Rejection, ...]], dict[SplitName, int]]:
    """Return the rows that cannot be used, as ``named_rejections`` does.

    Raises:
        DataError: The table has no rows, or too many cannot be used.
    """
    if not n_rows:
        raise no_rows(config.source)
    rejected, n_rejected = named_rejections(parts)
    check_rejections(config, [item for items in rejected.values() for item in items], n_rows, sum(n_rejected.values()))
    return rejected, n_rejected


def _require_read(
    known_files: KnownFiles,
    written: Mapping[SplitName, SplitRows],
    class_names: Sequence[str],
    base: Base[RowRecords] | None,
) -> None:
    """Raise ``MoreToRead`` unless every row that is written was read."""
    all_files = {source: range(len(seen_source.names)) for source, seen_source in known_files.now.items()}
    if base is None:
        msg = "all is written anew"
        raise MoreToRead(msg, all_files)
    if tuple(class_names) != base.manifests["train"].class_names and len(known_files.now) > 1:
        msg = "there are other classes, by which rows of the other sources may be good now that were not"
        raise MoreToRead(msg, all_files)
    missing_files: dict[SplitName, set[int]] = {}
    for split, chosen in written.items():
        for run, rows in zip(chosen.runs, chosen.rows, strict=True):
            if isinstance(run, StoredRun) and len(rows):
                missing_files.setdefault(known_files.source_of(split), set()).update(
                    np.unique(run.files[rows]).tolist()
                )
    if missing_files:
        msg = "small shards, or shards of which much has gone, are written anew"
        raise MoreToRead(msg, missing_files)


def _with_parts(now: Mapping[SplitName, SeenSource], parts: Parts) -> dict[SplitName, SeenSource]:
    return {source: replace(files, parts=tuple(parts[source])) for source, files in now.items()}


def _rows_of_files(
    splits: Mapping[SplitName, SplitRows], parts: Sequence[PartSummary], positions: Mapping[SplitName, Positions]
) -> dict[SplitName, SeenRows]:
    """Return the records of each split's rows, in the order of its shards."""
    file_of = {run.file: part.file for part in parts for run in part.runs}
    return {
        split: SeenRows(
            files=chosen.files(file_of)[positions[split]],
            contents=chosen.column("content")[positions[split]],
            labels=chosen.label()[positions[split]],
        )
        for split, chosen in splits.items()
    }


def _base_that_fits(
    base: Base[RowRecords] | None, columns: TableColumns, class_names: Sequence[str], n_classes: int
) -> Base[RowRecords] | None:
    """Return the base if it has the same columns and classes; else the log says the difference."""
    if base is None:
        return None
    old_columns, new_columns = (
        table_columns.model_dump(mode="json", exclude=set(_MEASURED)) for table_columns in (_columns_of(base), columns)
    )
    if differing := [name for name in new_columns if new_columns[name] != old_columns[name]]:
        _log.info("ingest: %s is written anew: the table has other %s", base.folder, ", ".join(differing))
        return None
    return base if labels_stay(base.manifests["train"], class_names, n_classes) else None


def _columns_of(base: Base[RowRecords]) -> TableColumns:
    columns = base.manifests["train"].table
    assert columns is not None
    return columns


def _drift(config: IngestConfig, columns: TableColumns, sums: ColumnSums) -> Findings:
    """Return the drifted features since version 1; the log has the largest shift."""
    drift, shift = find_drift(columns, sums)
    if config.standardize:
        _log.info(
            "ingest: features are standardised as in version 1, whose means differ by %.2f deviations at most; full"
            " computes them anew",
            shift,
        )
    return drift


def _changes(
    base: Base[RowRecords] | None, splits: Mapping[SplitName, SplitRows]
) -> dict[SplitName, Change[RowRecords]]:
    """Return split -> change; an empty mapping where no shard stays, and all is written anew."""
    if base is None:
        return {}
    changes: dict[SplitName, Change[RowRecords]] = {}
    for split, chosen in splits.items():
        shards = base.shards(split)
        keys = [shard.records for shard in shards]
        changes[split] = find_changes(shards, keys, chosen.column("name"), chosen.column("state"), base.version)
    return changes if changes["train"].carried else {}


def _n_rows(parts: Sequence[PartSummary]) -> int:
    return sum(part.n_rows for part in parts)
