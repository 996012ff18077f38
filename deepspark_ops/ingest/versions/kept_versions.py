"""Earlier versions of a dataset, ``versions/<digest>``: folders of their own whose files are links to equal bytes."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.versions.stored_shard import files_of, link_files
from deepspark_ops.run_paths import DatasetPaths, sync_folder, write_whole
from deepspark_ops.shards.hdf5_shard import write_hdf5_list
from deepspark_ops.shards.manifest import (
    MANIFEST_NAME,
    DatasetManifest,
    SplitName,
    present_splits,
    read_manifest,
    sha256_of_file,
)
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import StorePath

_BESIDE: Final = ("contact_sheet.zip", "report.html")
_HDF5_LIST: Final = "files.txt"


def version_digest(dataset: Path) -> str:
    """Return what names a dataset as it is: the digest of its training set's manifest.

    Raises:
        DataError: There is none.
    """
    path = DatasetPaths(dataset).manifest("train")
    if not path.is_file():
        read_manifest(path.parent)
    return f"sha256:{sha256_of_file(path)}"


def keep_version(dataset: Path) -> Path:
    """Let the dataset as it is be below its ``versions``, too, and return where; costs links, no bytes.

    In a store it is the manifests and lists alone: the shards stay where they are.

    Raises:
        DataError: It is damaged.
    """
    paths = DatasetPaths(dataset)
    target = paths.version(version_digest(dataset))
    if DatasetPaths(target).manifest("train").is_file():
        return target
    if isinstance(dataset, StorePath):
        _keep_in_store(dataset, target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=target.parent))
    try:
        for split in present_splits(dataset):
            folder = paths.split(split)
            manifest = read_manifest(folder)
            link_files(folder, _files(folder, manifest), work / split)
            if (folder / _HDF5_LIST).is_file():  # it holds absolute paths
                write_hdf5_list(work / split / _HDF5_LIST, [target / split / shard.file for shard in manifest.shards])
        link_files(dataset, [name for name in _BESIDE if (dataset / name).is_file()], work)
        work.chmod(0o755)
        work.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _keep_in_store(dataset: Path, target: Path) -> None:
    """Copy what is not a shard; the training set's manifest last, since it makes the version be there."""
    for split in reversed(present_splits(dataset)):
        folder, other = DatasetPaths(dataset).split(split), DatasetPaths(target).split(split)
        manifest = read_manifest(folder)
        for name in (*_lists(folder, manifest), MANIFEST_NAME):
            with local_copy(folder / name) as local, write_whole(other / name) as temporary:
                shutil.copyfile(local, temporary)


def _files(folder: Path, manifest: DatasetManifest) -> list[str]:
    shards = (name for shard in manifest.shards for name in files_of(shard))
    return [MANIFEST_NAME, *shards, *_lists(folder, manifest)]


def _lists(folder: Path, manifest: DatasetManifest) -> list[str]:
    """Return the names of the mean, of the lists of records, and of what is known of the source's files."""
    others = [manifest.mean_file.file if manifest.mean_file and manifest.split == "train" else None]
    others += [manifest.source_files.file if manifest.source_files else None]
    others += [manifest.rejected_file, manifest.warnings_file]
    return [name for name in others if name is not None and (folder / name).is_file()]


def kept_versions(dataset: Path) -> list[Path]:
    """Return the folders of the earlier versions that are there, oldest first."""
    folder = DatasetPaths(dataset).versions
    found: list[tuple[int, float, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        with suppress(DataError, OSError):
            manifest = DatasetPaths(path).manifest("train")
            found.append((read_manifest(path / "train").version, manifest.stat().st_mtime, path))
    return [path for *_, path in sorted(found)]


def files_of_versions(dataset: Path, split: SplitName) -> set[str]:
    """Return the names of the files that earlier versions of a split have: a run may be reading them by these names."""
    found: set[str] = set()
    for path in kept_versions(dataset):
        with suppress(DataError):
            found |= {name for shard in read_manifest(path / split).shards for name in files_of(shard)}
    return found
