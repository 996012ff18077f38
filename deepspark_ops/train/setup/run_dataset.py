"""A note of the dataset's version at the start of a run: the run goes on with this version after the dataset grows.

The note also has the stamps of the shards at the start, so that workers notice changed shards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import VERSIONS_NAME, DatasetPaths, RunPaths, write_text_whole
from deepspark_ops.shards.changed_shards import Stamp, shard_stamps
from deepspark_ops.shards.manifest import split_digests
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path, on_driver
from deepspark_ops.train.setup.dataset_users import note_user

NOTE_VERSION: Final = 2
_READABLE: Final = (1, NOTE_VERSION)
"""1 has no shards."""


def stamps_of(dataset: DataPath | None) -> dict[str, dict[str, Stamp]]:
    """Return split -> the stamps of its shards; without a damaged split, which the closer checks report."""
    stamps: dict[str, dict[str, Stamp]] = {}
    if dataset is None:
        return stamps
    for split in ("train", "test"):
        with suppress(DataError):
            stamps[split] = shard_stamps(DatasetPaths(dataset).split(split))
    return stamps


def stamp_use(dataset: DataPath | None) -> None:
    """Touch the dataset of a starting run: a cleanup sees the stamp before the run's folder names the dataset."""
    if dataset is None:
        return
    used = DatasetPaths(root_of(dataset)).used
    with suppress(OSError):  # a dataset that only others may write
        if isinstance(used, Path):
            used.touch()


def root_of(dataset: DataPath) -> DataPath:
    """Return the folder with all versions of a dataset."""
    return dataset.parent.parent if dataset.parent.name == VERSIONS_NAME else dataset


def note_dataset(config: TrainConfig, paths: RunPaths, stamps: Mapping[str, Mapping[str, Stamp]] | None = None) -> None:
    """Note the dataset of a run, the digest of the training set's manifest and the shards' stamps, format version 2."""
    if config.dataset is None:
        paths.dataset.unlink(missing_ok=True)
        return
    digest = _digest_of(config.dataset)
    noted = {
        "format_version": NOTE_VERSION,
        "dataset": str(config.dataset),
        "train_digest": digest,
        "shards": stamps or {},
    }
    write_text_whole(paths.dataset, json.dumps(noted, indent=1) + "\n")
    note_user(root_of(config.dataset), paths.root, digest)


def noted_digest(paths: RunPaths) -> str | None:
    """Return the digest of the training set at the start of a run; None if unknown."""
    noted = _read(paths)
    return None if noted is None else noted[1]


def noted_stamps(config: TrainConfig, paths: RunPaths) -> dict[str, dict[str, Stamp]]:
    """Return split -> the stamps of the shards when the present life of a run began.

    Raises:
        DataError: The dataset was replaced meanwhile: a worker that starts again must not read the new data.
    """
    noted = _read(paths)
    if config.dataset is None or noted is None:
        return {}
    digest = noted[1]
    if _digest_of(config.dataset) != digest:
        msg = (
            f"dataset={config.dataset}: was replaced while the run reads it, and its version {digest[:19]}... is not"
            " kept; the same command goes on from the last snapshot, with the new data"
        )
        raise DataError(msg)
    shards = json.loads(regular_text(paths.dataset)).get("shards", {})
    return {split: {file: (int(size), int(at)) for file, (size, at) in rows.items()} for split, rows in shards.items()}


def with_its_version(config: TrainConfig, paths: RunPaths) -> TrainConfig:
    """Return the config with the dataset's version at the start of the run in ``paths``.

    The config stays unchanged for a new run, for another dataset, and for a version that was deleted.
    """
    noted = _read(paths)
    if config.dataset is None or noted is None:
        return config
    dataset, digest = noted
    if isinstance(dataset, Path) and _is_on_driver(config.dataset):
        dataset = on_driver(dataset)
    version = DatasetPaths(config.dataset).version(digest)
    if dataset == version and version.is_dir():
        return config.model_copy(update={"dataset": version})
    if dataset != config.dataset or _digest_of(config.dataset) == digest or not version.is_dir():
        return config
    return config.model_copy(update={"dataset": version})


def with_visible_data(config: TrainConfig, paths: RunPaths) -> TrainConfig:
    """Return the config with the dataset as this worker's host reads it: from its disks, else from the driver's disk.

    The config stays as of ``with_its_version`` where the host has the data of the run's start.
    """
    noted = _read(paths)
    if noted is None or not isinstance(config.dataset, Path):
        return with_its_version(config, paths)
    with suppress(DataError, OSError):  # other data of this path, or damaged data
        on_host = with_its_version(config, paths)
        if on_host.dataset is not None and _digest_of(on_host.dataset) == noted[1]:
            return on_host
    return with_its_version(config.model_copy(update={"dataset": on_driver(config.dataset)}), paths)


def _is_on_driver(dataset: DataPath) -> bool:
    return isinstance(dataset, StorePath) and dataset.is_on_driver


def _read(paths: RunPaths) -> tuple[DataPath, str] | None:
    try:
        noted = json.loads(regular_text(paths.dataset))
        if noted["format_version"] not in _READABLE or not noted["train_digest"]:
            return None
        return data_path(str(noted["dataset"])), str(noted["train_digest"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _digest_of(dataset: DataPath) -> str:
    return split_digests(dataset).get("train", "")
