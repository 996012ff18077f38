"""The index of a table's rows, from the summaries of the table's parts, and the way of rows into shards."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.commit import check_rejections
from deepspark_ops.ingest.files.table_files import no_rows
from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Findings
from deepspark_ops.ingest.plan import DatasetPlan, Encoding, plan_dataset
from deepspark_ops.ingest.recipe import Recipe
from deepspark_ops.ingest.records import Positions, Rejection
from deepspark_ops.ingest.selection.choice import Choice, Counts, RecordIndex, limited, require_classes, takes_all
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
from deepspark_ops.ingest.tables.row_files import Parts, PartSummary, Spread
from deepspark_ops.ingest.tables.split_rows import SplitRows, all_rows
from deepspark_ops.ingest.tables.table_shards import (
    TableShards,
    TableShardTask,
    note_chosen,
    row_task,
    rows_per_shard,
    run_table_shard,
)
from deepspark_ops.ingest.versions.base import Base, labels_stay
from deepspark_ops.ingest.versions.changes import Change, find_changes
from deepspark_ops.ingest.versions.stored_shard import StoredShard
from deepspark_ops.shards.files.row_records import RowRecords
from deepspark_ops.shards.manifest import SPLITS, SplitName
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


@dataclass(frozen=True)
class ReadRows:
    """The rows of a table after reading.

    Attributes:
        rows: Recipe of the training source.
        parts: Source -> summaries of its parts, of this ingestion or of the base.
        names: Names of the classes in label order, from an option or from text labels.
    """

    rows: RowRecipe
    parts: Parts
    names: tuple[str, ...] = ()

    def every(self) -> list[PartSummary]:
        """Return the summaries of all sources."""
        return [part for summaries in self.parts.values() for part in summaries]


class MoreToRead(Exception):
    """Rows of files that were not read go into new shards.

    Attributes:
        files: Source -> numbers of the files with such rows.
    """

    def __init__(self, why: str, files: Mapping[SplitName, Collection[int]]) -> None:
        """Name the files."""
        super().__init__(why)
        self.files = files


def plan_rows(
    config: IngestConfig,
    recipe: Recipe,
    read_rows: ReadRows,
    folder: Path,
    spread: Spread,
    base: Base[RowRecords] | None,
    now: Mapping[SplitName, SeenSource] | None,
    known_files: KnownFiles | None,
) -> DatasetPlan[TableShardTask]:
    """Return the plan of a table's dataset: labels, choice of rows, standardisation, shards.

    Args:
        config: What is asked for.
        recipe: Recipe of the sources.
        read_rows: The rows of the table.
        folder: Scratch folder of the runs.
        spread: Reads the rows once more where only some are taken, since mean and deviation are theirs.
        base: Dataset whose rows are taken over where they have not changed. Its mean and deviation stay.
        now: The files of each source, where a part of a table is of one file.
        known_files: Those of them that were not read: the base's rows stand for theirs.

    Raises:
        MoreToRead: Files that were not read have to be.
        ConfigError: Options leave a split empty, or classes are too many, or there are none to be balanced.
        DataError: No usable row, or a missing value that is refused.
    """
    rows, parts, class_names = read_rows.rows, read_rows.parts, read_rows.names
    every = read_rows.every()
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
    require_classes(config, n_classes)
    splits, counts = _limited_rows(config, held, has_classes=n_classes > 0)
    index = RecordIndex(
        splits=splits,
        counts=counts,
        n_before={split: len(of_split) for split, of_split in held.items()},
        n_records=_n_rows(every),
        n_classes=n_classes,
        class_names=class_names,
        rejected=rejected,
        n_rejected=n_rejected,
    )
    listed = Findings() if rows.listed is None else list_findings(rows.listed, held, every)

    def encoder(choice: Choice[SplitRows]) -> RowEncoder:
        if takes_all(config):
            sums = merged((part.sums for part in every), rows.n_features)
        else:
            sums = sums_of_chosen(choice.splits, rows, folder, spread)
        columns = columns_of_table(config, rows, sums, "class" if n_classes else "value")
        shared = TableShards(folder, rows, columns, n_classes, has_codes)
        return RowEncoder(config, read_rows, shared, sums, choice.splits, listed, now, known_files)

    return plan_dataset(config, recipe, index, encoder, base)


@dataclass(frozen=True)
class RowEncoder:
    """The way of rows into shards, see ``Encoder``.

    Attributes:
        config: What is asked for.
        read_rows: The rows of the table.
        shared: Input of all tasks, with the columns as this ingestion measured them.
        sums: Sums of the chosen training rows.
        chosen: Chosen rows of each split.
        listed: Findings of a list of splits.
        now: The files of each source, where a part of a table is of one file.
        known_files: Those of them that were not read.
    """

    config: IngestConfig
    read_rows: ReadRows
    shared: TableShards
    sums: ColumnSums
    chosen: Mapping[SplitName, SplitRows]
    listed: Findings
    now: Mapping[SplitName, SeenSource] | None
    known_files: KnownFiles | None

    def fitting_base(self, base: Base[Any] | None) -> Base[Any] | None:
        """See ``Encoder``: a base has the same columns and classes."""
        if base is None:
            return None
        old_columns, new_columns = (
            table_columns.model_dump(mode="json", exclude=set(_MEASURED))
            for table_columns in (_columns_of(base), self.shared.columns)
        )
        if differing := [name for name in new_columns if new_columns[name] != old_columns[name]]:
            _log.info("ingest: %s is written anew: the table has other %s", base.folder, ", ".join(differing))
            return None
        return base if labels_stay(base.manifests["train"], self.read_rows.names, self.shared.n_classes) else None

    def change(
        self, split: SplitName, records: SplitRows, shards: list[StoredShard[Any]], version: int
    ) -> Change[RowRecords]:
        """See ``Encoder``: a row is the same if its state is."""
        keys = [shard.records for shard in shards]
        return find_changes(shards, keys, records.column("name"), records.column("state"), version)

    def encoding(
        self, written: Mapping[SplitName, SplitRows], base: Base[Any] | None
    ) -> Encoding[SplitRows, TableShardTask]:
        """See ``Encoder``: mean and deviation are those of the base.

        Raises:
            MoreToRead: Rows of files that were not read are to be written.
        """
        if self.known_files is not None:
            _require_read(self.known_files, written, self.read_rows.names, base)
        if base is not None:
            note_chosen(written, self.shared.folder)
        columns = self.shared.columns if base is None else _columns_of(base)
        are_chosen = base is not None or not takes_all(self.config)
        shared = replace(self.shared, columns=columns, are_chosen=are_chosen)
        n_features = shared.recipe.n_features
        return Encoding(
            sample_shape=(columns.n_features,),
            task=row_task,
            run=partial(run_table_shard, shared=shared),
            most_samples=lambda n_rows: rows_per_shard(
                self.config.samples_per_shard if self.config.shards is None else n_rows, n_features
            ),
            usual_shards=lambda _: 1,
            table=columns,
            findings=self._findings(base),
            files_writer=self._files_writer,
        )

    def _findings(self, base: Base[Any] | None) -> Mapping[SplitName, Findings]:
        once = {split: chosen.once() for split, chosen in self.chosen.items()}
        findings = find_duplicates(once, NAMED_OF_A_KIND)
        findings["train"].merge(column_findings(self.shared.columns, self.sums))
        findings["train"].merge(value_findings(self.shared.columns, self.read_rows.every()))
        findings["train"].merge(self.listed)
        if base is not None:
            findings["train"].merge(_drift(self.config, _columns_of(base), self.sums))
        return findings

    def _files_writer(self, stored: Mapping[SplitName, Positions]) -> Callable[[Path], None] | None:
        """Return the writer of the files' records; None where Spark reads a source, or only some rows are taken."""
        if self.now is None or not takes_all(self.config):
            return None
        file_of = {run.file: part.file for part in self.read_rows.every() for run in part.runs}
        rows = {
            split: SeenRows(
                files=chosen.files(file_of)[stored[split]],
                contents=chosen.column("content")[stored[split]],
                labels=chosen.label()[stored[split]],
            )
            for split, chosen in self.chosen.items()
        }
        parts = self.read_rows.parts
        sources = {source: replace(files, parts=tuple(parts[source])) for source, files in self.now.items()}
        return partial(write_seen_files, seen_files=SeenFiles(sources, rows))


def _limited_rows(
    config: IngestConfig, held: Mapping[SplitName, SplitRows], *, has_classes: bool
) -> tuple[dict[SplitName, SplitRows], Counts]:
    """Return the rows after ``limited``; a limit holds for all splits of the training source together."""
    sources = {"validation": config.validation_source, "test": config.test_source}
    of_train = [split for split in held if sources.get(split) is None]
    parts = [held[split] for split in of_train]
    of_source = {split: rows for split, rows in held.items() if split not in of_train}
    limited_rows, counts = limited(config, {"train": SplitRows.joined(parts), **of_source}, has_classes=has_classes)
    splits = {**limited_rows, **dict(zip(of_train, limited_rows["train"].cut(parts), strict=True))}
    return {split: splits[split] for split in held}, counts


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


def _n_rows(parts: Sequence[PartSummary]) -> int:
    return sum(part.n_rows for part in parts)
