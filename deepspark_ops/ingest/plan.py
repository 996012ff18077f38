"""From a config to the list of tasks: the records of the source, their valid labels, and the shard of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from caffe_import.files.text_file import read_text_file, text_lines
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import open_archive, read_member_text, split_member
from deepspark_ops.ingest.files.image_files import source_digest
from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.records import (
    Positions,
    RecordError,
    Rejection,
    SourceIndex,
    stamps_of,
    with_classes,
)
from deepspark_ops.ingest.selection.choice import Choice, choose, limited
from deepspark_ops.ingest.selection.image_records import ImageRecords
from deepspark_ops.ingest.selection.records_of_split import Choosable, RecordsOfSplit
from deepspark_ops.ingest.selection.row_hash import name_hashes
from deepspark_ops.ingest.selection.splits import digest_of_split_list, split_up
from deepspark_ops.ingest.shard_assignment import asked_shards, sample_order, shard_bounds
from deepspark_ops.ingest.shard_task import ShardResult, ShardTask, run_shard_task
from deepspark_ops.ingest.sources.registry import digest_source, index_source, resolve_format
from deepspark_ops.ingest.versions.base import Base, first_number, labels_stay, options_of_samples
from deepspark_ops.ingest.versions.changes import Change, find_image_changes
from deepspark_ops.ingest.versions.stored_shard import StoredShard
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.lmdb_shard import MAX_SHARD_BYTES
from deepspark_ops.shards.manifest import SPLITS, SourceRecord, SplitName
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.shards.shard_records import ShardRecords
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.store_path import DataPath

if TYPE_CHECKING:
    from deepspark_ops.ingest.tables.table_shards import TableShardTask

_RECIPE_VERSION = 3
"""Raise it when the same config would make other shards than before."""
MAX_UNASKED_CLASSES = 1_000_000
_PEEK_RECORDS = 100
_PAGE_BYTES = 4096
_RECORD_EXTRA_BYTES = 128
_SHARD_FILL = 0.9
Task = TypeVar("Task", ShardTask, "TableShardTask")


@dataclass(frozen=True)
class Recipe:
    """The input of a dataset's bytes: sources with digests, options, and a digest over all.

    Attributes:
        sources: Split -> source; a split without an entry comes out of the training source.
        sha256: Digest over sources and options.
        options: Options that decide the samples.
    """

    sources: Mapping[SplitName, SourceRecord]
    sha256: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def source(self, split: SplitName) -> SourceRecord:
        """Return the source of a split's samples."""
        return self.sources.get(split, self.sources["train"])


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
        n_rejected: Split -> number of all such records, where the plan does not name all.
        findings: Split -> warnings and notes on its records.
        base: Version that the dataset goes on from; None where all is written anew.
        changes: Split -> difference from that version.
        pixels: Steps from an image to a sample; None for a table.
        group: Column of the groups of images; None without groups.
        table: Columns of a table; None for images.
        write_files: Writes the records of a table's files; None where the table is read every time.
        counts: Split -> reason -> number of records that were left out or repeated by an option.
        n_samples: Split -> number of its records, those in shards that stay included.
        label_counts: Split -> (n_classes,) labels of these records.
        carried_counts: Split -> (n_classes,) labels in shards that stay.
    """

    tasks: tuple[Task, ...]
    run: Callable[[Task], ShardResult]
    sample_shape: tuple[int, ...]
    n_records: int
    n_classes: int
    class_names: tuple[str, ...]
    rejected: Mapping[SplitName, tuple[Rejection, ...]] = field(default_factory=dict)
    n_rejected: Mapping[SplitName, int] = field(default_factory=dict)
    findings: Mapping[SplitName, Findings] = field(default_factory=dict)
    base: Base[Any] | None = None
    changes: Mapping[SplitName, Change[Any]] = field(default_factory=dict)
    pixels: PixelSteps | None = None
    group: str | None = None
    table: TableColumns | None = None
    write_files: Callable[[Path], None] | None = None
    counts: Mapping[SplitName, Mapping[str, int]] = field(default_factory=dict)
    n_samples: Mapping[SplitName, int] = field(default_factory=dict)
    label_counts: Mapping[SplitName, Positions] = field(default_factory=dict)
    carried_counts: Mapping[SplitName, Positions] = field(default_factory=dict)

    def counted(self, choice: Choice[RecordsOfSplit], written: Mapping[SplitName, RecordsOfSplit]) -> DatasetPlan[Task]:
        """Return the plan with the counts and findings of a choice.

        Args:
            choice: Records of each split.
            written: Those of them that the tasks write.
        """
        labels, new_labels = (
            {split: self._count_labels(records) for split, records in splits.items()}
            for splits in (choice.splits, written)
        )
        findings = {split: Findings() for split in {**self.findings, **choice.splits}}
        for part in (self.findings, choice.findings):
            for split, further in part.items():
                findings[split].merge(further)
        return replace(
            self,
            findings=findings,
            counts=choice.counts,
            n_samples={split: len(records) for split, records in choice.splits.items()},
            label_counts=labels,
            carried_counts={split: labels[split] - new_labels[split] for split in self.changes},
        )

    def _count_labels(self, records: Choosable) -> Positions:
        if not self.n_classes:
            return np.zeros(0, np.int64)
        counts: Positions = np.bincount(records.class_numbers(), minlength=self.n_classes)
        return counts

    def count_rejected(self, split: SplitName) -> int:
        """Return the number of a split's records that cannot be used."""
        return self.n_rejected.get(split, len(self.rejected.get(split, ())))

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


def make_recipe(config: IngestConfig, *, is_preview: bool = False) -> Recipe:
    """Digest the sources and the options; no record is read.

    Args:
        config: What is asked for.
        is_preview: Leave all digests empty: they would read every byte of the sources.

    Raises:
        ConfigError: A source does not exist or is of no known format.
        DataError: A source cannot be read.
    """
    sources = {}
    for split, source in own_sources(config).items():
        name = resolve_format(config, source)
        digest = "" if is_preview else digest_source(config, source, name)
        sources[split] = SourceRecord(path=str(source), format=name, sha256=digest)
    options = options_of_samples(config)
    if is_preview:
        return Recipe(sources, "", options)
    names = "" if config.class_names is None else _digest_of_names(config.class_names)
    digests = {split: source.sha256 for split, source in sources.items()}
    if config.test_source is None and config.test_fraction > 0:
        digests["test"] = digests["train"]  # as recipe version 2 had it
    parts = [_RECIPE_VERSION, options, names, digests]
    if config.split_list is not None:
        parts.append(digest_of_split_list(config.split_list))
    text = json.dumps(parts, sort_keys=True)
    return Recipe(sources, hashlib.sha256(text.encode()).hexdigest(), options)


def own_sources(config: IngestConfig) -> dict[SplitName, DataPath]:
    """Return split -> source, for the splits that do not come out of the training source."""
    sources: dict[SplitName, DataPath | None] = {
        "train": config.source,
        "validation": config.validation_source,
        "test": config.test_source,
    }
    return {split: source for split, source in sources.items() if source is not None}


IndexSource = Callable[[IngestConfig, DataPath, SourceFormat, DataPath], SourceIndex]
"""Returns the index of a source's records, as ``index_source`` does."""


def plan_ingest(
    config: IngestConfig,
    recipe: Recipe,
    work: DataPath,
    read_index: IndexSource = index_source,
    base: Base[ShardRecords] | None = None,
    *,
    is_preview: bool = False,
) -> DatasetPlan[ShardTask]:
    """Read the sources' lists and labels and assign their records to shards.

    Args:
        config: What is asked for.
        recipe: Of ``make_recipe``; its digest becomes part of the shards' names, so that new shards never overwrite
            those of a dataset that is still in use.
        work: Scratch folder that the tasks can read too.
        read_index: Reads one source.
        base: Dataset whose samples are taken over where their records have not changed.
        is_preview: Spare what only a dataset that is kept needs: a look at every file's time of change.

    Raises:
        ConfigError: Options that do not fit the source.
        DataError: No usable record, or a damaged source.
    """
    source_indexes = _index_sources(config, recipe, work, read_index)
    names = _class_names(config, source_indexes["train"], work)
    indexes = {split: with_classes(index, names) for split, index in source_indexes.items()}
    is_known = config.n_classes is not None or names
    n_classes = count_classes(config, config.n_classes, names, 0 if is_known else _largest_label(config, indexes))
    usable = {split: _usable(index, n_classes) for split, index in indexes.items()}
    steps = _pixel_steps(config, indexes["train"])
    pixels = PixelRecipe.of(steps, decode_mib=config.decode_mib)
    if base is not None and not (
        labels_stay(base.manifests["train"], names, n_classes) and _groups_stay(base, indexes["train"])
    ):
        base = None
    if base is None:
        shape, dtype = _peek(indexes["train"], usable["train"], pixels, config)
    else:
        shape, dtype = _shape_and_dtype(base)
    findings = {split: _list_findings(index) for split, index in indexes.items()}
    rejected = {split: _rejections(index, source_indexes[split], n_classes) for split, index in indexes.items()}
    limited_records, counts = limited(config, {split: ImageRecords(indexes[split], usable[split]) for split in indexes})
    parts = split_up(config, indexes["train"], limited_records["train"].positions)
    rejected["train"] += parts.rejected
    records_of = {
        **limited_records,
        **{split: ImageRecords(indexes["train"], of_split) for split, of_split in parts.positions.items()},
    }
    splits = {split: records_of[split] for split in SPLITS if split in records_of}
    choice = choose(config, splits, counts, {split: len(records) for split, records in splits.items()}, rejected)
    findings["train"].merge(parts.findings)
    stamps = (
        None
        if is_preview or config.stamp == "digest"
        else {split: stamps_of(indexes[split].reader) for split in indexes}
    )
    changes: dict[SplitName, Change[ShardRecords]] = {}
    written = dict(choice.splits)
    tasks: list[ShardTask] = []
    for split, records in choice.splits.items():
        source_stamps = None if stamps is None else stamps.get(split, stamps["train"])
        n_rows = 0
        if base is not None:
            shards = base.shards(split)
            change = find_image_changes(shards, records.index, records.positions, source_stamps, base.version)
            changes[split], written[split] = change, records.selected(change.added)
            n_rows = sum(shard.record.n_rows for shard in change.carried)
        index, positions = records.index, written[split].positions
        all_records = ShardTask(
            split=split,
            number=0,
            path=config.output,
            shard_format=config.shard_format,
            encoded=config.encoded,
            first=n_rows,
            positions=positions,
            names=tuple(index.names[i] for i in positions.tolist()),
            labels=index.labels[positions],
            reader=index.reader.subset(positions),
            recipe=pixels,
            shape=shape,
            dtype=dtype,
            n_classes=n_classes,
            repeats=written[split].repeats,
            stamps=None if source_stamps is None else source_stamps[positions],
            groups=_group_hashes(index, positions),
        )
        tasks += _cut(config, recipe, base, all_records)
    plan = DatasetPlan(
        tasks=tuple(tasks),
        run=run_shard_task,
        sample_shape=shape,
        n_records=sum(len(index.labels) + len(index.rejected) for index in indexes.values()),
        n_classes=n_classes,
        class_names=names,
        rejected=rejected,
        findings=findings,
        base=base,
        changes=changes,
        pixels=PixelSteps.model_validate({**steps.model_dump(), "dtype": dtype}),
        group=config.group_column if indexes["train"].groups else None,
    )
    return plan.counted(choice, written)


def _cut(
    config: IngestConfig, recipe: Recipe, base: Base[ShardRecords] | None, all_records: ShardTask
) -> list[ShardTask]:
    """Return the tasks of a split from a task with all records, whose number and path are those of no shard."""
    n_samples = all_records.n_records
    order = sample_order(np.arange(n_samples), shuffle=config.shuffle, seed=config.seed)
    most = _samples_per_shard(config, all_records.shape, all_records.dtype, n_samples)
    bounds = shard_bounds(n_samples, most, least=asked_shards(n_samples, most, config.shards, where=all_records.split))
    return [
        replace(all_records.subset(order[start:stop]), number=number, path=path, first=all_records.first + start)
        for (number, path), (start, stop) in zip(
            new_shards(config, recipe, all_records.split, base, len(bounds)), bounds, strict=True
        )
    ]


def new_shards(
    config: IngestConfig, recipe: Recipe, split: SplitName, base: Base[Any] | None, n_shards: int
) -> list[tuple[int, DataPath]]:
    """Return number and path of each new shard of a split; the file name is another one for each recipe."""
    first = first_number(config, recipe.sha256, split, None if base is None else base.manifests.get(split))
    folder = DatasetPaths(config.output).split(split)
    suffix = "h5" if config.shard_format == "hdf5" else "lmdb"
    return [
        (number, folder / f"{split}-{number:05d}-{recipe.sha256[:8]}.{suffix}")
        for number in range(first, first + n_shards)
    ]


def _group_hashes(index: SourceIndex, positions: Positions) -> npt.NDArray[np.uint64] | None:
    if not index.groups:
        return None
    return name_hashes([index.groups[i] for i in positions.tolist()], salt=b"group")


def _groups_stay(base: Base[ShardRecords], index: SourceIndex) -> bool:
    """Whether a dataset that is gone on from knows the groups of its samples, where the source has groups."""
    return bool(index.groups) == (base.manifests["train"].group is not None)


def _shape_and_dtype(base: Base[ShardRecords]) -> tuple[tuple[int, int, int], str]:
    """Return shape and dtype of the pixels that went into a dataset: whole sums are those of bytes."""
    channels, height, width = base.manifests["train"].sample_shape
    return (channels, height, width), "uint8" if base.records["train"][0].sums.dtype == np.int64 else "float32"


def _list_findings(index: SourceIndex) -> Findings:
    findings = _repeated_paths(index)
    findings.merge(index.findings)
    return findings


def _index_sources(
    config: IngestConfig, recipe: Recipe, work: DataPath, read_index: IndexSource
) -> dict[SplitName, SourceIndex]:
    return {
        split: read_index(config, source, recipe.sources[split].format, work)
        for split, source in own_sources(config).items()
    }


def _usable(index: SourceIndex, n_classes: int) -> Positions:
    return np.flatnonzero((index.labels >= 0) & (index.labels < n_classes))


def _rejections(index: SourceIndex, source_index: SourceIndex, n_classes: int) -> tuple[Rejection, ...]:
    outside = np.flatnonzero((index.labels < 0) | (index.labels >= n_classes)).tolist()
    labels = (_bad_label(index, source_index, i, n_classes) for i in outside)
    return (*index.rejected, *labels)


def _bad_label(index: SourceIndex, source_index: SourceIndex, position: int, n_classes: int) -> Rejection:
    label = int(index.labels[position])
    if source_index.are_names:
        name = source_index.class_names[source_index.labels[position]]
        return Rejection(position, index.names[position], None, f'class "{name}" is not among the {n_classes} classes')
    return Rejection(position, index.names[position], label, f"label {label} is outside [0, {n_classes})")


def _class_names(config: IngestConfig, index: SourceIndex, work: DataPath) -> tuple[str, ...]:
    names = index.class_names if config.class_names is None else read_class_names(config.class_names, work)
    if names and config.n_classes is not None and config.n_classes != len(names):
        where = config.class_names or config.source
        msg = f"n_classes={config.n_classes}, but {where} names {len(names)}; give one of them"
        raise ConfigError(msg)
    if index.are_names and len(set(names)) < len(names):
        repeated = next(name for position, name in enumerate(names) if name in names[:position])
        msg = f'class_names={config.class_names}: the class "{repeated}" stands there more than once'
        raise ConfigError(msg)
    return names


def read_class_names(class_names: DataPath, work: DataPath) -> tuple[str, ...]:
    """Return the names of a file, or member of an archive, in label order.

    Raises:
        ConfigError: It is empty.
    """
    path, member = split_member(class_names)
    if member is not None:
        text = read_member_text(open_archive(path, work), member)
    else:
        text = read_text_file(path)
    names = text_lines(text)
    if not names:
        msg = f"class_names={class_names}: the file is empty"
        raise ConfigError(msg)
    return names


def _digest_of_names(class_names: DataPath) -> str:
    path, _ = split_member(class_names)
    if not path.is_file():
        msg = f"class_names={class_names}: no such file"
        raise ConfigError(msg)
    return source_digest(path)


def _largest_label(config: IngestConfig, indexes: Mapping[SplitName, SourceIndex]) -> int:
    largest = max(int(index.labels.max()) for index in indexes.values())
    if largest < 0:
        msg = f"source={config.source}: every label is negative, e.g. {largest}; labels count from 0"
        raise DataError(msg)
    return largest


def count_classes(config: IngestConfig, n_classes: int | None, names: Sequence[str], largest: float) -> int:
    """Return the number of classes.

    Args:
        config: Config of the ingestion.
        n_classes: Number from an option; None without.
        names: Names of the classes, if they are known.
        largest: Largest label of all sources; infinite without labels.

    Raises:
        ConfigError: The largest label is more likely a mistake than a class.
    """
    if n_classes is not None or names:
        return n_classes or len(names)
    if largest >= MAX_UNASKED_CLASSES:
        msg = f"source={config.source}: the largest label is {largest:,.0f}; give n_classes, so that wrong labels show"
        raise ConfigError(msg)
    return max(1, int(largest) + 1) if np.isfinite(largest) else 1


def _pixel_steps(config: IngestConfig, index: SourceIndex) -> PixelSteps:
    return PixelSteps(
        gray=config.gray,
        decode_color=index.decode_color,
        max_pixel=config.max_pixel,
        height=config.resize_height,
        width=config.resize_width,
        scaled_decoding=config.scaled_decoding,
    )


def _peek(
    index: SourceIndex, usable: Positions, pixels: PixelRecipe, config: IngestConfig
) -> tuple[tuple[int, int, int], str]:
    """Return shape and dtype of the first record that can be read; all others must have them too."""
    reasons = []
    first = usable[:_PEEK_RECORDS]
    with index.reader.subset(first).opened() as read:
        for i, position in enumerate(first):
            try:
                image = pixels.apply(read(i))
            except RecordError as error:
                reasons.append(f"{index.names[position]}: {error}")
                continue
            return (image.shape[0], image.shape[1], image.shape[2]), str(image.dtype)
    reason_text = "; ".join(reasons[:3]) or "every label is outside the classes"
    n_tried = len(first) or len(index.labels)
    msg = f"source={config.source}: none of the first {n_tried:,} records can be used: {reason_text}"
    raise DataError(msg)


def _samples_per_shard(config: IngestConfig, shape: tuple[int, int, int], dtype: str, n_samples: int) -> int:
    """Return the configured number, or fewer where the shard would near 2 GiB."""
    if config.shards is not None and config.encoded:
        return max(1, n_samples)  # how large they are shows when they are written
    n_values = int(np.prod(shape))
    value_bytes = 4 if config.shard_format == "hdf5" or dtype == "float32" else 1
    # LMDB keeps large records in whole pages.
    sample_bytes = -(-(n_values * value_bytes + _RECORD_EXTRA_BYTES) // _PAGE_BYTES) * _PAGE_BYTES
    has_room = int(MAX_SHARD_BYTES * _SHARD_FILL) // sample_bytes
    return max(1, has_room if config.shards is not None else min(config.samples_per_shard, has_room))


def _repeated_paths(index: SourceIndex) -> Findings:
    """Return the names that a source gives more than once, with different labels."""
    findings = Findings()
    if len(set(index.names)) == len(index.names):
        return findings
    labels: dict[str, set[int]] = {}
    for name, label in zip(index.names, index.labels.tolist(), strict=True):
        labels.setdefault(name, set()).add(label)
    for position, name in enumerate(index.names):
        if len(name_labels := labels[name]) > 1:
            shown = ", ".join(str(label) for label in sorted(name_labels))
            findings.add(Finding("path_with_two_labels", name, f"is listed with the labels {shown}", position))
            labels[name] = set()
    return findings
