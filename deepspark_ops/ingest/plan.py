"""The one path from records to the tasks of a dataset, for images and for rows of a table.

An index has the records of each split. A choice takes some of them, by limit, duplicates and balance. Records that an
earlier version holds stay in its shards; the others are assigned to new shards, one task for each. Images and rows
differ in their index and in their encoder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.findings import Findings
from deepspark_ops.ingest.recipe import Recipe
from deepspark_ops.ingest.records import Positions, Rejection
from deepspark_ops.ingest.selection.choice import Choice, RecordIndex, choose
from deepspark_ops.ingest.selection.records_of_split import Choosable, RecordsOfSplit
from deepspark_ops.ingest.shard_assignment import least_shards, shard_bounds
from deepspark_ops.ingest.shard_task import NewShard, ShardResult
from deepspark_ops.ingest.versions.base import Base, first_number
from deepspark_ops.ingest.versions.changes import Change, positions_of
from deepspark_ops.ingest.versions.stored_shard import StoredShard
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import SPLITS, SplitName
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.shards.table_columns import TableColumns

_log = logging.getLogger(__name__)
MAX_UNASKED_CLASSES = 1_000_000
Task = TypeVar("Task", bound=NewShard)


@dataclass(frozen=True)
class Encoding(Generic[RecordsOfSplit, Task]):
    """The way of records into shards.

    Attributes:
        sample_shape, run: See ``DatasetPlan``.
        task: Returns the task of a shard from its name, a split's records, the positions of the shard's records among
            them, and the number of the split's earlier samples.
        most_samples: Returns the most samples of a shard, from the number of a split's new samples.
        usual_shards: Returns the least number of shards without an option, likewise.
        pixels, group, table, findings: See ``DatasetPlan``.
        files_writer: Returns the function that writes the records of a table's files, from the stored order of each
            split's records; None where there is nothing to keep.
    """

    sample_shape: tuple[int, ...]
    task: Callable[[NewShard, RecordsOfSplit, Positions, int], Task]
    run: Callable[[Task], ShardResult]
    most_samples: Callable[[int], int]
    usual_shards: Callable[[int], int]
    pixels: PixelSteps | None = None
    group: str | None = None
    table: TableColumns | None = None
    findings: Mapping[SplitName, Findings] = field(default_factory=dict)
    files_writer: Callable[[Mapping[SplitName, Positions]], Callable[[Path], None] | None] = lambda _: None


class Encoder(Protocol[RecordsOfSplit, Task]):
    """The part of a plan that images and rows do differently, once the records are chosen."""

    def fitting_base(self, base: Base[Any] | None) -> Base[Any] | None:
        """Return the earlier version if its samples mean the same; the log says the difference."""
        ...

    def change(
        self, split: SplitName, records: RecordsOfSplit, shards: list[StoredShard[Any]], version: int
    ) -> Change[Any]:
        """Return the difference between a split and its earlier version."""
        ...

    def encoding(
        self, written: Mapping[SplitName, RecordsOfSplit], base: Base[Any] | None
    ) -> Encoding[RecordsOfSplit, Task]:
        """Return how the records that go into new shards are encoded."""
        ...


@dataclass(frozen=True)
class DatasetPlan(Generic[Task]):
    """All work of one ingestion, of images or of a table's rows.

    Attributes:
        tasks: Tasks of all splits, one for each new shard.
        run: Function that writes the shard of a task.
        sample_shape: Shape of every sample.
        n_records: Number of the sources' entries, bad ones included.
        n_classes: Labels are in [0, n_classes); 0 where labels are values.
        class_names: Names in label order, may be empty.
        rejected: Split -> records that cannot be used, as far as the plan names them.
        n_rejected: Split -> number of all such records.
        findings: Split -> warnings and notes on its records.
        counts: Split -> reason -> number of records that were left out or repeated by an option.
        n_samples: Split -> number of its records, those in shards that stay included.
        label_counts: Split -> (n_classes,) labels of these records.
        carried_counts: Split -> (n_classes,) labels in shards that stay.
        base: Version that the dataset goes on from; None where all is written anew.
        changes: Split -> difference from that version.
        pixels: Steps from an image to a sample; None for a table.
        group: Column of the groups of images; None without groups.
        table: Columns of a table; None for images.
        write_files: Writes the records of a table's files; None where the table is read every time.
    """

    tasks: tuple[Task, ...]
    run: Callable[[Task], ShardResult]
    sample_shape: tuple[int, ...]
    n_records: int
    n_classes: int
    class_names: tuple[str, ...]
    rejected: Mapping[SplitName, tuple[Rejection, ...]]
    n_rejected: Mapping[SplitName, int]
    findings: Mapping[SplitName, Findings]
    counts: Mapping[SplitName, Mapping[str, int]]
    n_samples: Mapping[SplitName, int]
    label_counts: Mapping[SplitName, Positions]
    carried_counts: Mapping[SplitName, Positions]
    base: Base[Any] | None
    changes: Mapping[SplitName, Change[Any]]
    pixels: PixelSteps | None
    group: str | None
    table: TableColumns | None
    write_files: Callable[[Path], None] | None

    def splits(self) -> list[SplitName]:
        """Return the splits with new shards or with shards that stay, train first."""
        present = {task.split for task in self.tasks} | {split for split in SPLITS if self.carried(split)}
        return [split for split in SPLITS if split in present]

    def carried(self, split: SplitName) -> tuple[StoredShard[Any], ...]:
        """Return the shards of a split that stay."""
        return self.changes[split].carried if split in self.changes else ()

    @property
    def version(self) -> int:
        """Version of the new dataset."""
        return 1 if self.base is None else self.base.version


def plan_dataset(
    config: IngestConfig,
    recipe: Recipe,
    index: RecordIndex[RecordsOfSplit],
    encoder: Callable[[Choice[RecordsOfSplit]], Encoder[RecordsOfSplit, Task]],
    base: Base[Any] | None,
) -> DatasetPlan[Task]:
    """Return the plan of a dataset: choice of records, shards that stay, new shards.

    Args:
        config: What is asked for.
        recipe: Its digest becomes part of the shards' names, so that new shards never overwrite those of a dataset
            that is still in use.
        index: Records of all sources.
        encoder: Returns the encoder of the chosen records.
        base: Dataset whose samples are taken over where their records have not changed.

    Raises:
        ConfigError: Options leave a split empty, or ask for too few shards.
        DataError: No usable record.
    """
    choice = choose(config, index)
    of_records = encoder(choice)
    base = of_records.fitting_base(base)
    changes: dict[SplitName, Change[Any]] = {}
    if base is not None:
        for split, records in choice.splits.items():
            changes[split] = of_records.change(split, records, base.shards(split), base.version)
        if not changes["train"].carried:
            _log.info("ingest: %s is written anew: no shard of the training set stays", config.output)
            base, changes = None, {}
    written = {
        split: records.selected(changes[split].added) if split in changes else records
        for split, records in choice.splits.items()
    }
    encoding = of_records.encoding(written, base)
    tasks: list[Task] = []
    stored: dict[SplitName, Positions] = {}
    for split, records in written.items():
        carried = changes[split].carried if split in changes else ()
        order = records.stored_order(shuffle=config.shuffle, seed=config.seed)
        tasks += _tasks(config, recipe, base, encoding, split, records, order, sum(s.record.n_rows for s in carried))
        added = changes[split].added[order] if split in changes else order
        stored[split] = np.concatenate([positions_of(carried), added])
    labels, new_labels = (
        {split: _count_labels(records, index.n_classes) for split, records in splits.items()}
        for splits in (choice.splits, written)
    )
    return DatasetPlan(
        tasks=tuple(tasks),
        run=encoding.run,
        sample_shape=encoding.sample_shape,
        n_records=index.n_records,
        n_classes=index.n_classes,
        class_names=index.class_names,
        rejected=index.rejected,
        n_rejected=index.n_rejected,
        findings=_joined([index.findings, encoding.findings, choice.findings], choice.splits),
        counts=choice.counts,
        n_samples={split: len(records) for split, records in choice.splits.items()},
        label_counts=labels,
        carried_counts={split: labels[split] - new_labels[split] for split in changes},
        base=base,
        changes=changes,
        pixels=encoding.pixels,
        group=encoding.group,
        table=encoding.table,
        write_files=encoding.files_writer(stored),
    )


def _tasks(
    config: IngestConfig,
    recipe: Recipe,
    base: Base[Any] | None,
    encoding: Encoding[RecordsOfSplit, Task],
    split: SplitName,
    records: RecordsOfSplit,
    order: Positions,
    n_earlier: int,
) -> list[Task]:
    """Return the tasks of a split; the file name of a shard is another one for each recipe."""
    n_samples = len(order)
    most = encoding.most_samples(n_samples)
    least = least_shards(n_samples, most, config.shards, encoding.usual_shards(n_samples), where=split)
    first = first_number(config, recipe.sha256, split, None if base is None else base.manifests.get(split))
    folder = DatasetPaths(config.output).split(split)
    suffix = "h5" if config.shard_format == "hdf5" else "lmdb"
    tasks = []
    for number, (start, stop) in enumerate(shard_bounds(n_samples, most, least=least), first):
        shard = NewShard(split, number, folder / f"{split}-{number:05d}-{recipe.sha256[:8]}.{suffix}")
        tasks.append(encoding.task(shard, records, order[start:stop], n_earlier + start))
    return tasks


def _joined(parts: list[Mapping[SplitName, Findings]], splits: Mapping[SplitName, object]) -> dict[SplitName, Findings]:
    findings = {split: Findings() for split in dict.fromkeys([*(split for part in parts for split in part), *splits])}
    for part in parts:
        for split, further in part.items():
            findings[split].merge(further)
    return findings


def _count_labels(records: Choosable, n_classes: int) -> Positions:
    if not n_classes:
        return np.zeros(0, np.int64)
    counts: Positions = np.bincount(records.class_numbers(), minlength=n_classes)
    return counts


def count_classes(config: IngestConfig, n_classes: int | None, names: Sequence[str], largest: float) -> int:
    """Return the number of classes: of the option, of the names, or by the largest label, infinite without labels.

    Raises:
        ConfigError: The largest label is more likely a mistake than a class.
    """
    if n_classes is not None or names:
        return n_classes or len(names)
    if largest >= MAX_UNASKED_CLASSES:
        msg = f"source={config.source}: the largest label is {largest:,.0f}; give n_classes, so that wrong labels show"
        raise ConfigError(msg)
    return max(1, int(largest) + 1) if np.isfinite(largest) else 1
