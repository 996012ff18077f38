"""Which version of its dataset a run began with: it goes on with that one, though the dataset has grown meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.run_paths import DatasetPaths, RunPaths, write_text_whole
from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.stores.store_path import data_path

NOTE_VERSION: Final = 1


def note_dataset(config: TrainConfig, paths: RunPaths) -> None:
    """Note the dataset of a run and the digest of its training set's manifest, format version 1."""
    if config.dataset is None:
        paths.dataset.unlink(missing_ok=True)
        return
    digest = _digest_of(config.dataset)
    noted = {"format_version": NOTE_VERSION, "dataset": str(config.dataset), "train_digest": digest}
    write_text_whole(paths.dataset, json.dumps(noted, indent=1) + "\n")


def noted_digest(paths: RunPaths) -> str | None:
    """Return the digest of the training set that a run began with; None where it is not known."""
    noted = _read(paths)
    return None if noted is None else noted[1]


def with_its_version(config: TrainConfig, paths: RunPaths) -> TrainConfig:
    """Return the config with the version of the dataset that the run in ``paths`` began with.

    The config stays as it is for a run that begins, for another dataset, and where that version is not kept.
    """
    noted = _read(paths)
    if config.dataset is None or noted is None:
        return config
    dataset, digest = noted
    kept = DatasetPaths(config.dataset).version(digest)
    if dataset == kept and kept.is_dir():
        return config.model_copy(update={"dataset": kept})
    if dataset != config.dataset or _digest_of(config.dataset) == digest or not kept.is_dir():
        return config
    return config.model_copy(update={"dataset": kept})


def _read(paths: RunPaths) -> tuple[Path, str] | None:
    try:
        noted = json.loads(paths.dataset.read_text(encoding="utf-8"))
        if noted["format_version"] != NOTE_VERSION or not noted["train_digest"]:
            return None
        return data_path(str(noted["dataset"])), str(noted["train_digest"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _digest_of(dataset: Path) -> str:
    manifest = DatasetPaths(dataset).manifest("train")
    return f"sha256:{sha256_of_file(manifest)}" if manifest.is_file() else ""
