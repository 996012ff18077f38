"""The dataset that an ingestion goes on from: one made with the same options, of whose records most are still there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np

from deepspark_ops.config.base import WHERE_IT_RUNS
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.sources.registry import with_own_splits
from deepspark_ops.ingest.versions.kept_versions import names_in_versions
from deepspark_ops.ingest.versions.stored_shard import Records, StoredShard
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.files.row_records import read_row_records
from deepspark_ops.shards.files.shard_records import read_records
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    SplitName,
    is_dataset,
    manifest_path,
    present_splits,
    read_manifest,
    require_one_recipe,
    shard_folder,
)
from deepspark_ops.shards.verification import verify
from deepspark_ops.stores.store_path import DataPath, StorePath

_log = logging.getLogger(__name__)
_MAY_DIFFER: Final = frozenset({"source", "test_source", "validation_source", "split_list", "class_names"})
"""Names of files: what their records are is compared record by record."""
_ALWAYS_DIGESTED: Final = frozenset(
    "source test_source test_fraction source_format root_folder labels class_names shard_format encoded resize_height"
    " resize_width gray max_pixel n_classes shuffle seed samples_per_shard".split()
)
"""Options whose default is in the digest, too. Every other option counts where it is set, so a new option leaves the
digests of existing datasets as they were."""
_NOT_IN_THE_BYTES: Final = frozenset(
    "output previous full max_rejected_fraction stamp strict staging_folder staging_size unpacked_gib".split()
)
"""Where the dataset is and what is allowed to be wrong with it do not change its samples."""


@dataclass(frozen=True)
class Base(Generic[Records]):
    """A dataset whose shards may be named again.

    Attributes:
        folder: The dataset.
        manifests: Of its splits.
        records: Of each shard of a split, in the manifest's order.
    """

    folder: DataPath
    manifests: Mapping[SplitName, DatasetManifest]
    records: Mapping[SplitName, Sequence[Records]]

    @property
    def version(self) -> int:
        """Of the dataset that goes on from this one."""
        return self.manifests["train"].version + 1

    def shards(self, split: SplitName) -> list[StoredShard[Records]]:
        """Return the shards of a split; none where the dataset has no such split."""
        if (manifest := self.manifests.get(split)) is None:
            return []
        return [
            StoredShard(shard, records, np.full(shard.n_rows, -1, np.int64), self.folder / split, manifest.shard_format)
            for shard, records in zip(manifest.shards, self.records[split], strict=True)
        ]


def find_base(config: IngestConfig, options: Mapping[str, Any], *, of_table: bool = False) -> Base[Any] | None:
    """Return the dataset in ``previous``, else in ``output``, if an ingestion can go on from it; the log says why not.

    Args:
        config: What is asked for.
        options: Those that decide what samples are, of the recipe.
        of_table: Whether the dataset must hold a table's features; else images.
    """
    folder = config.previous or config.output
    if folder != config.output and (isinstance(folder, StorePath) or isinstance(config.output, StorePath)):
        _log.info("ingest: %s is written anew: files of %s cannot be shared with a store", config.output, folder)
        return None
    if config.full or not is_dataset(folder):
        return None
    if config.shards is not None:
        _log.info("ingest: shards=%d: all is written anew, as what is new would be further shards", config.shards)
        return None
    try:
        manifests = {split: verify(folder / split, digests=None) for split in present_splits(folder)}
        require_one_recipe(folder, manifests)
        why = _why_not(manifests, options)
        if why is None and (manifests["train"].table is not None) != of_table:
            why = "it holds images" if of_table else "it holds features of a table"
        if why is not None:
            _log.info("ingest: %s is written anew: %s", config.output, why)
            return None
        read = read_row_records if of_table else read_records
        records = {
            split: [
                read(shard_folder(DatasetPaths(folder).split(split)) / records_file.file)
                for shard in manifest.shards
                for records_file in shard.beside
            ]
            for split, manifest in manifests.items()
        }
    except DataError as error:
        _log.warning("ingest: %s is written anew: %s", config.output, error)
        return None
    return Base(folder, manifests, records)


def _why_not(manifests: Mapping[SplitName, DatasetManifest], options: Mapping[str, Any]) -> str | None:
    train = manifests["train"]
    names = sorted(set(options) | set(train.options))
    changed = [
        f"{name}={options.get(name, 'default')} (was {train.options.get(name, 'default')})"
        for name in names
        if name not in _MAY_DIFFER and options.get(name) != train.options.get(name)
    ]
    return f"other options: {', '.join(changed)}" if changed else None


def labels_stay(train: DatasetManifest, class_names: Sequence[str], n_classes: int) -> bool:
    """Whether labels of a training set mean the same classes now; the log says what is in the way."""
    if n_classes < train.n_classes:
        _log.info("ingest: written anew: the source has %d classes now, had %d", n_classes, train.n_classes)
        return False
    held = train.class_names
    if tuple(class_names[: len(held)]) != held:
        other = next(
            (f"{new} stands where {old} stood" for old, new in zip(held, class_names, strict=False) if old != new),
            "there are no names of classes any more",
        )
        _log.info(
            "ingest: written anew, since labels would mean other classes: %s; a file of class_names keeps an order",
            other,
        )
        return False
    return True


def previous_dataset(config: IngestConfig) -> DataPath | None:
    """Return the newest dataset beside ``output`` that comes from the same source by the same options, if there is one.

    For an installation whose datasets are a folder for each state of a source. A dataset that is in ``output`` itself,
    ``full`` or ``shards`` need none.
    """
    output = config.output
    writes_all = config.full or config.shards is not None
    if writes_all or is_dataset(output) or not output.parent.is_dir():
        return None
    with suppress(ConfigError, DataError):  # a source that is no good: the stage says so
        options = options_of_samples(with_own_splits(config))
        candidates: list[tuple[int, DataPath]] = []
        for folder in output.parent.iterdir():
            if folder.name.startswith(".") or not is_dataset(folder):
                continue
            with suppress(DataError):
                train = read_manifest(folder / "train")
                if train.options.get("source") == options["source"] and _why_not({"train": train}, options) is None:
                    candidates.append((manifest_path(folder, "train").stat().st_mtime_ns, folder))
        return max(candidates)[1] if candidates else None
    return None


def shard_number(file: str) -> int:
    """Return the number in a shard's name.

    Example:
        >>> shard_number("train-00012-0a1b2c3d.lmdb")
        12
    """
    return int(file.split("-")[1])


def first_number(
    config: IngestConfig, recipe_sha256: str, split: SplitName, base: DatasetManifest | None = None
) -> int:
    """Return the number of the first shard that an ingestion writes: no file that a version names is overwritten.

    ``recipe_sha256`` is part of the shards' names; ``base`` is the split that the ingestion goes on from.
    """
    of_recipe = f"-{recipe_sha256[:8]}."
    is_in_use = any(of_recipe in name for name in names_in_versions(config.output)[split])
    if base is None and not config.full and not is_in_use:
        return 0  # what is there of this recipe is damaged
    files = [] if base is None else [shard.file for shard in base.shards]
    files += [path.name for path in DatasetPaths(config.output).split(split).glob(f"{split}-*-*")]
    return 1 + max((shard_number(file) for file in files), default=-1)


def options_of_samples(config: IngestConfig) -> dict[str, Any]:
    """Return the options as JSON values."""
    options = config.model_dump(mode="json", exclude={*_NOT_IN_THE_BYTES, *WHERE_IT_RUNS})
    return {
        name: value
        for name, value in options.items()
        if name in _ALWAYS_DIGESTED or getattr(config, name) != IngestConfig.model_fields[name].default
    }
