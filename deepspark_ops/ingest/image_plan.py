"""The index of images, and the way of images into shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.image_files import FolderReader
from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.plan import DatasetPlan, Encoding, count_classes, plan_dataset
from deepspark_ops.ingest.recipe import Recipe, own_sources, read_class_names
from deepspark_ops.ingest.records import Positions, RecordError, Rejection, SourceIndex, with_classes
from deepspark_ops.ingest.selection.choice import RecordIndex, limited
from deepspark_ops.ingest.selection.image_records import ImageRecords
from deepspark_ops.ingest.selection.row_hash import name_hashes
from deepspark_ops.ingest.selection.splits import split_up
from deepspark_ops.ingest.shard_assignment import shards_for_cores
from deepspark_ops.ingest.shard_task import NewShard, ShardTask, run_shard_task
from deepspark_ops.ingest.sources.registry import index_source
from deepspark_ops.ingest.versions.base import Base, labels_stay
from deepspark_ops.ingest.versions.changes import Change, find_image_changes
from deepspark_ops.ingest.versions.stored_shard import StoredShard
from deepspark_ops.shards.files.lmdb_shard import MAX_SHARD_BYTES
from deepspark_ops.shards.files.shard_records import ShardRecords
from deepspark_ops.shards.manifest import SPLITS, SplitName
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.stores.store_path import DataPath

_PEEK_RECORDS = 100
_PAGE_BYTES = 4096
_RECORD_EXTRA_BYTES = 128
_SHARD_FILL = 0.9

IndexSource = Callable[[IngestConfig, DataPath, SourceFormat, DataPath], SourceIndex]
"""Returns the index of a source's records, as ``index_source`` does."""


def plan_images(
    config: IngestConfig,
    recipe: Recipe,
    work: DataPath,
    read_index: IndexSource = index_source,
    base: Base[ShardRecords] | None = None,
    *,
    is_preview: bool = False,
) -> DatasetPlan[ShardTask]:
    """Read the sources' lists and labels and return the plan of a dataset of images.

    ``work`` is a scratch folder that the tasks can read too; ``base`` is as for ``plan_dataset``. A preview spares what
    only a dataset that is kept needs: a look at every file's time of change.

    Raises:
        ConfigError: Options that do not fit the source.
        DataError: No usable record, or a damaged source.
    """
    source_indexes = {
        split: read_index(config, source, recipe.sources[split].format, work)
        for split, source in own_sources(config).items()
    }
    names = _class_names(config, source_indexes["train"], work)
    indexes = {split: with_classes(index, names) for split, index in source_indexes.items()}
    is_known = config.n_classes is not None or names
    n_classes = count_classes(config, config.n_classes, names, 0 if is_known else _largest_label(config, indexes))
    usable = {
        split: np.flatnonzero((index.labels >= 0) & (index.labels < n_classes)) for split, index in indexes.items()
    }
    findings = {split: _repeated_paths(index) for split, index in indexes.items()}
    rejected = {split: _rejections(index, source_indexes[split], n_classes) for split, index in indexes.items()}
    limited_records, counts = limited(config, {split: ImageRecords(indexes[split], usable[split]) for split in indexes})
    parts = split_up(config, indexes["train"], limited_records["train"].positions)
    rejected["train"] += parts.rejected
    for split, source_index in indexes.items():
        findings[split].merge(source_index.findings)
    findings["train"].merge(parts.findings)
    records_of = {
        **limited_records,
        **{split: ImageRecords(indexes["train"], of_split) for split, of_split in parts.positions.items()},
    }
    splits = {split: records_of[split] for split in SPLITS if split in records_of}
    index = RecordIndex(
        splits=splits,
        counts=counts,
        n_before={split: len(records) for split, records in splits.items()},
        n_records=sum(len(of_source.labels) + len(of_source.rejected) for of_source in indexes.values()),
        n_classes=n_classes,
        class_names=names,
        rejected=rejected,
        n_rejected={split: len(items) for split, items in rejected.items()},
        findings=findings,
    )
    has_stamps = not is_preview and config.stamp != "digest"
    stamps = {
        split: of_source.reader.stamps() if has_stamps and isinstance(of_source.reader, FolderReader) else None
        for split, of_source in indexes.items()
    }
    encoder = ImageEncoder(config, indexes["train"], usable["train"], n_classes, names, stamps)
    if base is None:
        assert encoder.first_image  # before the choice: a source without an image is no matter of a split's share
    return plan_dataset(config, recipe, index, lambda _: encoder, base)


@dataclass(frozen=True)
class ImageEncoder:
    """The way of images into shards, see ``Encoder``.

    Attributes:
        config: What is asked for.
        train: Index of the training source.
        usable: Positions of the usable records of this source.
        n_classes: Number of classes.
        class_names: Names in label order, may be empty.
        stamps: Source -> stamps of all its records; None where they show no change.
    """

    config: IngestConfig
    train: SourceIndex
    usable: Positions
    n_classes: int
    class_names: tuple[str, ...]
    stamps: Mapping[SplitName, npt.NDArray[np.uint64] | None]

    def fitting_base(self, base: Base[Any] | None) -> Base[Any] | None:
        """See ``Encoder``: a base knows the groups of its samples, where the source has groups."""
        if base is None or not labels_stay(base.manifests["train"], self.class_names, self.n_classes):
            return None
        return base if bool(self.train.groups) == (base.manifests["train"].group is not None) else None

    def change(
        self, split: SplitName, records: ImageRecords, shards: list[StoredShard[Any]], version: int
    ) -> Change[ShardRecords]:
        """See ``Encoder``."""
        return find_image_changes(shards, records.index, records.positions, self._stamps_of(split), version)

    def encoding(
        self, written: Mapping[SplitName, ImageRecords], base: Base[Any] | None
    ) -> Encoding[ImageRecords, ShardTask]:
        """See ``Encoder``: shape and type are those of the base, else of the first image that can be read."""
        shape, dtype = self.first_image if base is None else _shape_and_dtype(base)
        return Encoding(
            sample_shape=shape,
            task=partial(self._task, shape=shape, dtype=dtype),
            run=run_shard_task,
            most_samples=lambda n_samples: _samples_per_shard(self.config, shape, dtype, n_samples),
            usual_shards=shards_for_cores,
            pixels=PixelSteps.model_validate({**self._steps.model_dump(), "dtype": dtype}),
            group=self.config.group_column if self.train.groups else None,
        )

    def _stamps_of(self, split: SplitName) -> npt.NDArray[np.uint64] | None:
        return self.stamps.get(split, self.stamps["train"])

    def _task(
        self,
        shard: NewShard,
        records: ImageRecords,
        rows: Positions,
        first: int,
        *,
        shape: tuple[int, int, int],
        dtype: str,
    ) -> ShardTask:
        index, positions, stamps = records.index, records.positions[rows], self._stamps_of(shard.split)
        return ShardTask(
            **vars(shard),
            shard_format=self.config.shard_format,
            encoded=self.config.encoded,
            first=first,
            positions=positions,
            names=tuple(index.names[i] for i in positions.tolist()),
            labels=index.labels[positions],
            reader=index.reader.subset(positions),
            recipe=self._recipe,
            shape=shape,
            dtype=dtype,
            n_classes=self.n_classes,
            repeats=None if records.repeats is None else records.repeats[rows],
            stamps=None if stamps is None else stamps[positions],
            groups=_group_hashes(index, positions),
        )

    @cached_property
    def _recipe(self) -> PixelRecipe:
        return PixelRecipe(self._steps, self.config.decode_mib)

    @cached_property
    def _steps(self) -> PixelSteps:
        config = self.config
        return PixelSteps(
            gray=config.gray,
            decode_color=self.train.decode_color,
            max_pixel=config.max_pixel,
            height=config.resize_height,
            width=config.resize_width,
            scaled_decoding=config.scaled_decoding,
        )

    @cached_property
    def first_image(self) -> tuple[tuple[int, int, int], str]:
        """Shape and dtype of the first record that can be read; all others must have them too.

        Raises:
            DataError: None of the first records can be used.
        """
        reasons = []
        first = self.usable[:_PEEK_RECORDS]
        with self.train.reader.subset(first).opened() as read:
            for i, position in enumerate(first):
                try:
                    image = self._recipe.apply(read(i))
                except RecordError as error:
                    reasons.append(f"{self.train.names[position]}: {error}")
                    continue
                return (image.shape[0], image.shape[1], image.shape[2]), str(image.dtype)
        reason_text = "; ".join(reasons[:3]) or "every label is outside the classes"
        n_tried = len(first) or len(self.train.labels)
        msg = f"source={self.config.source}: none of the first {n_tried:,} records can be used: {reason_text}"
        raise DataError(msg)


def _group_hashes(index: SourceIndex, positions: Positions) -> npt.NDArray[np.uint64] | None:
    if not index.groups:
        return None
    return name_hashes([index.groups[i] for i in positions.tolist()], salt=b"group")


def _shape_and_dtype(base: Base[Any]) -> tuple[tuple[int, int, int], str]:
    """Return shape and dtype of the pixels that went into a dataset: whole sums are those of bytes."""
    channels, height, width = base.manifests["train"].sample_shape
    return (channels, height, width), "uint8" if base.records["train"][0].sums.dtype == np.int64 else "float32"


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


def _largest_label(config: IngestConfig, indexes: Mapping[SplitName, SourceIndex]) -> int:
    largest = max(int(index.labels.max()) for index in indexes.values())
    if largest < 0:
        msg = f"source={config.source}: every label is negative, e.g. {largest}; labels count from 0"
        raise DataError(msg)
    return largest


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
