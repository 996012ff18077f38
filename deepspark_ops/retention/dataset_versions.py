"""Finds and removes unneeded earlier versions of a dataset; the newest version is always kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.ingest.versions.kept_versions import kept_versions, remove_unnamed, version_digest
from deepspark_ops.registry.overview import model_names, read_model
from deepspark_ops.retention.clean import unused
from deepspark_ops.retention.inventory import DATASETS, Stored, run_folders
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.manifest import (
    MANIFEST_NAME,
    ShardRecord,
    present_splits,
    read_manifest,
    split_digests,
)
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path
from deepspark_ops.stores.writing import remove_tree
from deepspark_ops.train.setup.dataset_users import current_users
from deepspark_ops.train.setup.run_dataset import noted_digest

PRUNE_VERSION: Final = 1


class PrunedVersion(FrozenModel):
    """An earlier version of a dataset, with the decision about the removal.

    Attributes:
        path: Folder of the version.
        digest: Digest of the training set's manifest.
        version: Number of the version.
        bytes: Bytes of shards that no remaining version has, which a removal frees.
        goes: Whether the version may be removed.
        removed: Whether the version was removed.
        reason: Reason of the decision.
    """

    path: str
    digest: str
    version: int
    bytes: int
    goes: bool
    removed: bool
    reason: str


class PruneReport(FrozenModel):
    """The earlier versions of a dataset.

    Attributes:
        format_version: Version of this form.
        dataset: Folder of the dataset.
        home: Folder of the runs and models; None if unknown.
        versions: Versions, oldest first.
    """

    format_version: Literal[1]
    dataset: str
    home: str | None
    versions: tuple[PrunedVersion, ...]

    def lines(self) -> list[str]:
        """Return a line per version and a summary."""
        report_lines = [
            f"version {version.version} {version.path}: {size_text(version.bytes)},"
            f" {'removed' if version.removed else 'goes' if version.goes else 'stays'}: {version.reason}"
            for version in self.versions
        ]
        if self.home is None:
            report_lines.append("runs and models of a home are not known: give home, the folder of runs/ and models/")
        going = [version for version in self.versions if version.goes]
        if not going:
            return [*report_lines, "nothing to remove"]
        freed = size_text(sum(version.bytes for version in going))
        word = "removed" if going[0].removed else "can be removed by the option remove; nothing is removed yet"
        return [*report_lines, f"{len(going):,} of {len(self.versions):,} earlier versions, {freed}: {word}"]


def prune_versions(
    dataset: DataPath,
    *,
    keep: int,
    remove: bool,
    home: Path | None,
    on_step: Callable[[str], None],
    models: Sequence[Path] = (),
) -> PruneReport:
    """Find the unneeded earlier versions of a dataset; on request remove the versions with their shards.

    The newest versions are kept, and also the source of a run or of a model's version. The runs are all runs of the
    home, and all runs with a note in the dataset.

    Args:
        dataset: Folder of the dataset, also in a store; the present version is always kept.
        keep: Number of newest earlier versions to keep.
        remove: Whether to remove the versions.
        home: Folder of ``runs/`` and ``models/``; None: the parent of the ``datasets/`` folder of the dataset.
        on_step: Called with a text for each removal.
        models: Folders of models in production besides ``models/`` of the home.

    Raises:
        ConfigError: An ingestion is running on the dataset, or a folder of models does not exist.
        DataError: The dataset is missing, or a manifest, a run or a model is damaged; nothing is removed.
        OSError: A folder cannot be removed.
    """
    if not dataset.is_dir():
        msg = f"{dataset}: no such dataset folder; give the OUTPUT of an ingestion"
        raise DataError(msg)
    for folder in models:
        if not folder.is_dir():
            msg = f"models={folder}: no such folder"
            raise ConfigError(msg)
    if home is None and dataset.absolute().parent.name == DATASETS and not isinstance(dataset, StorePath):
        home = dataset.absolute().parent.parent
    users = partial(_users, dataset, home, models)
    with _nobody_writes(dataset, remove=remove):
        paths = kept_versions(dataset)
        reasons = _reasons(dataset, paths, keep, users())
        going = [path for path in paths if path not in reasons]
        freed = _freed(dataset, paths, going)
        facts = {path: (version_digest(path), read_manifest(path / "train").version) for path in paths}
        if remove and going:
            reasons |= _remove(dataset, going, users, on_step)
            going = [path for path in going if path not in reasons]
        pruned = [
            PrunedVersion(
                path=str(path),
                digest=facts[path][0],
                version=facts[path][1],
                bytes=freed[path],
                goes=path in going,
                removed=path in going and remove,
                reason=reasons.get(path, "nothing refers to it"),
            )
            for path in paths
        ]
    return PruneReport(
        format_version=PRUNE_VERSION,
        dataset=str(dataset),
        home=None if home is None else str(home),
        versions=tuple(pruned),
    )


def _reasons(dataset: DataPath, paths: list[DataPath], keep: int, uses: dict[str, str]) -> dict[DataPath, str]:
    """Return version -> reason to keep the version."""
    reasons: dict[DataPath, str] = {}
    newest = set(paths[len(paths) - keep :]) if keep else set()
    for path in paths:
        digests = set(split_digests(path).values())
        used = next((uses[key] for key in (*sorted(digests), str(path)) if key in uses), None)
        if used is not None:
            reasons[path] = used
        elif path in newest:
            reasons[path] = f"one of the {keep} newest of {dataset.name}"
    return reasons


def _users(dataset: DataPath, home: Path | None, models: Sequence[Path]) -> dict[str, str]:
    """Return digest, or folder, of a dataset's version -> user of the version."""
    users: dict[str, str] = {}
    for run in () if home is None else run_folders(home):
        digest = noted_digest(RunPaths(run))
        if digest is not None:
            users.setdefault(digest, f"run {run.name} began with it")
        if (named := _named_dataset(run)) is not None:
            users.setdefault(named, f"run {run.name} names it")
    for user in current_users(dataset):
        users.setdefault(user.train_digest, f"run {user.run_dir} of host {user.host} began with it")
        if user.run_dir.is_dir() and (named := _named_dataset(user.run_dir)) is not None:
            users.setdefault(named, f"run {user.run_dir} names it")
    for folder in (*([] if home is None else [home / "models"]), *models):
        for name in model_names(folder):
            for record in read_model(folder, name).versions:
                for digest in record.origin.datasets.values():
                    users.setdefault(digest, f"{record.version} of model {name} came from it")
    return users


def _named_dataset(run: Path) -> str | None:
    config = RunPaths(run).config
    if not config.is_file():
        return None
    try:
        values = json.loads(regular_text(config))
        dataset = values.get("dataset")
    except (ValueError, AttributeError) as error:
        msg = f"{config}: no JSON object, so what the run refers to is not known; repair it, or remove the run"
        raise DataError(msg) from error
    return None if dataset is None else str(data_path(str(dataset)))


def _freed(dataset: DataPath, paths: list[DataPath], going: list[DataPath]) -> dict[DataPath, int]:
    """Return version -> bytes of the shards missing in the dataset and in all remaining versions."""
    kept_digests = {shard.sha256 for path in (dataset, *paths) if path not in going for shard in _shards(path)}
    freed_bytes = dict.fromkeys(paths, 0)
    for path in going:
        for shard in _shards(path):
            if shard.sha256 not in kept_digests:
                kept_digests.add(shard.sha256)
                freed_bytes[path] += shard.n_bytes
    return freed_bytes


def _shards(dataset: DataPath) -> Iterator[ShardRecord]:
    for split in present_splits(dataset):
        yield from read_manifest(DatasetPaths(dataset).split(split)).shards


def _remove(
    dataset: DataPath, going: list[DataPath], users: Callable[[], dict[str, str]], on_step: Callable[[str], None]
) -> dict[DataPath, str]:
    """Remove versions; return the reasons for keeping versions with a new run."""
    reasons: dict[DataPath, str] = {}
    for path in going:
        if new_reasons := _reasons(dataset, [path], 0, users()):
            reasons |= new_reasons
            continue
        on_step(f"removing {path}")
        if isinstance(path, StorePath):
            (path / MANIFEST_NAME).unlink()  # the version no longer exists
            remove_tree(path)
        else:
            hidden = path.with_name(f".{path.name}.removed")
            path.rename(hidden)
            shutil.rmtree(hidden)
    remove_unnamed(dataset)
    return reasons


@contextmanager
def _nobody_writes(dataset: DataPath, *, remove: bool) -> Iterator[None]:
    if isinstance(dataset, StorePath) or not remove:
        yield
        return
    with unused(Stored("dataset", dataset.absolute(), 0, 0.0)) as is_free:
        if not is_free:
            msg = f"{dataset}: an ingestion is at work on it; prune it when that has ended"
            raise ConfigError(msg)
        yield
