"""Earlier versions of a dataset that nothing needs any more, and their removal; the newest one always stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from caffe_import.files.regular_file import regular_text
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.versions.kept_versions import kept_versions, remove_unnamed, version_digest
from deepspark_ops.registry.overview import model_names, read_model
from deepspark_ops.retention.clean import unused
from deepspark_ops.retention.inventory import DATASETS, Stored, run_folders
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.manifest import (
    MANIFEST_NAME,
    DatasetManifest,
    ShardRecord,
    present_splits,
    read_manifest,
    split_digests,
)
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import StorePath, data_path
from deepspark_ops.stores.writing import remove_tree
from deepspark_ops.train.setup.run_dataset import noted_digest

PRUNE_VERSION: Final = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PrunedVersion(_Frozen):
    """An earlier version of a dataset, and what becomes of it.

    Attributes:
        path: Its folder.
        digest: Of its training set's manifest.
        version: Its number.
        bytes: Of shards that no version that stays has: what its removal frees.
        goes: Whether it may be removed.
        removed: Whether it was.
        reason: Why it goes or stays.
    """

    path: str
    digest: str
    version: int
    bytes: int
    goes: bool
    removed: bool
    reason: str


class PruneReport(_Frozen):
    """The earlier versions of a dataset.

    Attributes:
        format_version: Version of this form.
        dataset: Its folder.
        home: Where runs and models were looked for; None where nobody said.
        versions: Oldest first.
    """

    format_version: Literal[1]
    dataset: str
    home: str | None
    versions: tuple[PrunedVersion, ...]

    def lines(self) -> list[str]:
        """Return a line for each version and what was asked of whom."""
        found = [
            f"version {one.version} {one.path}: {size_text(one.bytes)},"
            f" {'removed' if one.removed else 'goes' if one.goes else 'stays'}: {one.reason}"
            for one in self.versions
        ]
        if self.home is None:
            found.append("runs and models are not known: give home, the folder of runs/ and models/")
        going = [one for one in self.versions if one.goes]
        if not going:
            return [*found, "nothing to remove"]
        freed = size_text(sum(one.bytes for one in going))
        word = "removed" if going[0].removed else "can be removed, nothing was (give remove)"
        return [*found, f"{len(going):,} of {len(self.versions):,} earlier versions, {freed}: {word}"]


def prune_versions(
    dataset: Path, *, keep: int, remove: bool, home: Path | None, on_step: Callable[[str], None]
) -> PruneReport:
    """Find the earlier versions of a dataset that nothing needs; remove them, and their shards, if that is asked.

    A version stays if it is among the newest, a run began with it, or a version of a model came from it.

    Args:
        dataset: Its folder, also in a store; what is in it now always stays.
        keep: So many earlier versions stay, the newest.
        remove: Really remove them.
        home: Folder of ``runs/`` and ``models/``; None: the one whose ``datasets/`` the dataset is in.
        on_step: TransferState of each removal.

    Raises:
        ConfigError: An ingestion is at work on the dataset.
        DataError: There is no dataset, or a manifest, a run or a model is damaged; nothing is removed then.
        OSError: A folder cannot be removed.
    """
    if not dataset.is_dir():
        msg = f"{dataset}: no such dataset folder; give the OUTPUT of an ingestion"
        raise DataError(msg)
    if home is None and dataset.absolute().parent.name == DATASETS and not isinstance(dataset, StorePath):
        home = dataset.absolute().parent.parent
    with _nobody_writes(dataset, remove=remove):
        paths = kept_versions(dataset)
        reasons = _reasons(dataset, paths, keep, {} if home is None else _uses(home))
        going = [path for path in paths if path not in reasons]
        freed = _freed(dataset, paths, going)
        facts = {path: (version_digest(path), read_manifest(path / "train").version) for path in paths}
        if remove and going:
            reasons |= _remove(dataset, going, home, on_step)
            going = [path for path in going if path not in reasons]
        told = [
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
        versions=tuple(told),
    )


def _reasons(dataset: Path, paths: list[Path], keep: int, uses: dict[str, str]) -> dict[Path, str]:
    """Return version -> why it stays."""
    found: dict[Path, str] = {}
    newest = set(paths[len(paths) - keep :]) if keep else set()
    for path in paths:
        digests = set(split_digests(path).values())
        used = next((uses[key] for key in (*sorted(digests), str(path)) if key in uses), None)
        if used is not None:
            found[path] = used
        elif path in newest:
            found[path] = f"one of the {keep} newest of {dataset.name}"
    return found


def _uses(home: Path) -> dict[str, str]:
    """Return digest, or folder, of a dataset's version -> who needs it."""
    found: dict[str, str] = {}
    for run in run_folders(home):
        digest = noted_digest(RunPaths(run))
        if digest is not None:
            found.setdefault(digest, f"run {run.name} began with it")
        if (named := _named_dataset(run)) is not None:
            found.setdefault(named, f"run {run.name} names it")
    for name in model_names(home / "models"):
        for record in read_model(home / "models", name).versions:
            for digest in record.origin.datasets.values():
                found.setdefault(digest, f"{record.version} of model {name} came from it")
    return found


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


def _freed(dataset: Path, paths: list[Path], going: list[Path]) -> dict[Path, int]:
    """Return version -> bytes of its shards that neither the dataset nor a version that stays has."""
    seen = {shard.sha256 for path in (dataset, *paths) if path not in going for shard in _shards(path)}
    found = dict.fromkeys(paths, 0)
    for path in going:
        for shard in _shards(path):
            if shard.sha256 not in seen:
                seen.add(shard.sha256)
                found[path] += shard.n_bytes
    return found


def _shards(dataset: Path) -> Iterator[ShardRecord]:
    for manifest in _manifests(dataset):
        yield from manifest.shards


def _manifests(dataset: Path) -> list[DatasetManifest]:
    return [read_manifest(DatasetPaths(dataset).split(split)) for split in present_splits(dataset)]


def _remove(dataset: Path, going: list[Path], home: Path | None, on_step: Callable[[str], None]) -> dict[Path, str]:
    """Remove versions, and return why one stays: a run may have begun with it since the others were looked at."""
    reasons: dict[Path, str] = {}
    for path in going:
        now = _reasons(dataset, [path], 0, {} if home is None else _uses(home))
        if now:
            reasons |= now
            continue
        on_step(f"removing {path}")
        if isinstance(path, StorePath):
            (path / MANIFEST_NAME).unlink()  # from now on there is no such version
            remove_tree(path)
        else:
            hidden = path.with_name(f".{path.name}.removed")
            path.rename(hidden)
            shutil.rmtree(hidden)
    remove_unnamed(dataset)
    return reasons


@contextmanager
def _nobody_writes(dataset: Path, *, remove: bool) -> Iterator[None]:
    if isinstance(dataset, StorePath) or not remove:
        yield
        return
    with unused(Stored("dataset", dataset.absolute(), 0, 0.0)) as is_free:
        if not is_free:
            msg = f"{dataset}: an ingestion is at work on it; prune it when that has ended"
            raise ConfigError(msg)
        yield
