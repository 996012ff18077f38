"""Earlier versions of a dataset, ``versions/<digest>``: folders of their own whose files are links to equal bytes."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_text
from caffe_import.file_access.whole_file import remove_unfinished
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.versions.stored_shard import files_of, link_files
from deepspark_ops.run_paths import DatasetPaths, sync_folder, write_text_whole, write_whole
from deepspark_ops.shards.files.hdf5_shard import hdf5_list
from deepspark_ops.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    DatasetManifest,
    DatasetRoot,
    FileRecord,
    SplitName,
    is_dataset,
    manifest_path,
    present_splits,
    read_manifest,
    sha256_of_file,
    write_root,
)
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath, StorePath
from deepspark_ops.stores.writing import remove_tree

HDF5_LIST_NAME: Final = "files.txt"
ABANDONED_S: Final = 86_400.0
"""Age of the last change of a folder that is no version.

A store has no lock: another host may be writing the version.
"""
_BESIDE: Final = ("contact_sheet.zip", "report.html")
_IN_VERSIONS: Final = re.compile(r"[0-9a-f]{12}|\..*\.tmp|\.[0-9a-f]{12}\.removed")
_OF_INGESTION: Final = re.compile(
    r"(train|validation|test)-\d{5,}-[0-9a-f]{8}\..*"  # a shard, and what is beside it
    r"|(manifest|mean|rejected|warnings|files)-[0-9a-f]{12}\.(json|binaryproto|jsonl|npz)"
    r"|files\.txt|\..*\.tmp"
)


def version_digest(dataset: DataPath) -> str:
    """Return the digest of the training set's manifest, which names a version of a dataset.

    Raises:
        DataError: There is none.
    """
    path = manifest_path(dataset, "train")
    if not path.is_file():
        read_manifest(DatasetPaths(dataset).split("train"))
    return f"sha256:{sha256_of_file(path)}"


def keep_version(dataset: DataPath) -> DataPath:
    """Hard-link the current dataset into ``versions/<digest>`` and return that folder; it costs no bytes.

    In a store it is the manifests and lists alone: the shards stay where they are.

    Raises:
        DataError: It is damaged.
    """
    target = DatasetPaths(dataset).version(version_digest(dataset))
    root = DatasetRoot(splits={split: _manifest_record(dataset, split) for split in present_splits(dataset)})
    if is_dataset(target):
        return target
    if isinstance(dataset, StorePath) or isinstance(target, StorePath):
        for split in root.splits:
            for name in _without_shards(dataset, split):
                with local_copy(dataset / split / name) as local, write_whole(target / split / name) as temporary:
                    shutil.copyfile(local, temporary)
        write_root(target, root)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=target.parent))
    try:
        for split in root.splits:
            folder = dataset / split
            link_files(folder, [*_shards(dataset, split), *_without_shards(dataset, split)], work / split)
            write_list_for_caffe(work / split, read_manifest(folder), target / split)
        link_files(dataset, [name for name in _BESIDE if (dataset / name).is_file()], work)
        write_root(work, root)
        work.chmod(0o755)
        work.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _manifest_record(dataset: DataPath, split: SplitName) -> FileRecord:
    path = manifest_path(dataset, split)
    return FileRecord(file=path.name, sha256=sha256_of_file(path))


def _shards(dataset: DataPath, split: SplitName) -> list[str]:
    return [name for shard in read_manifest(dataset / split).shards for name in files_of(shard)]


def _without_shards(dataset: DataPath, split: SplitName) -> list[str]:
    """Return the names of the manifest, the mean, the lists of records, and what is known of the source's files."""
    folder = DatasetPaths(dataset).split(split)
    manifest = read_manifest(folder)
    names = [manifest.mean_file.file if manifest.mean_file and split == "train" else None]
    names += [manifest.source_files.file if manifest.source_files else None]
    names += [manifest.rejected_file, manifest.warnings_file]
    return [manifest_path(dataset, split).name, *(name for name in names if name and (folder / name).is_file())]


def kept_versions(dataset: DataPath) -> list[DataPath]:
    """Return the folders of the earlier versions that are there, oldest first."""
    folder = DatasetPaths(dataset).versions
    current = None
    with suppress(DataError):
        current = version_digest(dataset)
    versions: list[tuple[int, float, DataPath]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        with suppress(DataError, OSError):
            if version_digest(path) != current:
                changed = manifest_path(path, "train").stat().st_mtime
                versions.append((read_manifest(path / "train").version, changed, path))
    return [path for *_, path in sorted(versions)]


def write_list_for_caffe(folder: DataPath, manifest: DatasetManifest, shards_at: DataPath) -> None:
    """Write the list that an HDF5Data layer of Caffe reads, if a split is HDF5 and the list is another one.

    The list names shards in ``shards_at``; Caffe reads local files alone.
    """
    path = folder / HDF5_LIST_NAME
    if isinstance(folder, StorePath) or manifest.shard_format != "hdf5":
        return
    text = hdf5_list([shards_at / shard.file for shard in manifest.shards])
    if not path.is_file() or regular_text(path) != text:
        write_text_whole(path, text)


def remove_unnamed(dataset: DataPath) -> None:
    """Remove files of ingestions that no manifest names, of the dataset or of a version that is kept.

    They come from ingestions that failed or were killed, and from versions that are gone. A run may still be reading
    the files of a kept version by the names that they have in the dataset.

    Raises:
        DataError: A manifest is damaged: nobody knows what it names. Nothing is removed then.
    """
    named = names_in_versions(dataset)
    for split in present_splits(dataset) if is_dataset(dataset) else ():
        named[split] |= {*_shards(dataset, split), *_without_shards(dataset, split)}
        named[split] |= {HDF5_LIST_NAME} if read_manifest(dataset / split).shard_format == "hdf5" else set()
    for split, names in named.items():
        folder = DatasetPaths(dataset).split(split)
        for path in folder.iterdir() if folder.is_dir() else ():
            if _OF_INGESTION.fullmatch(path.name) and path.name not in names:
                remove_tree(path)
        if folder.is_dir() and not isinstance(folder, StorePath) and not any(folder.iterdir()):
            folder.rmdir()
    if not isinstance(dataset, StorePath):
        remove_unfinished(dataset)
    _remove_unfinished_versions(dataset)
    _remove_copies_of_current(dataset)


def _remove_unfinished_versions(dataset: DataPath) -> None:
    """Remove folders in ``versions/`` that have no ``dataset.json`` and did not change for a day.

    A process was killed while it wrote or removed a version.

    Raises:
        OSError: A store does not answer.
    """
    folder = DatasetPaths(dataset).versions
    for path in folder.iterdir() if folder.is_dir() else ():
        is_unfinished = path.name.startswith(".") or not is_dataset(path)
        if _IN_VERSIONS.fullmatch(path.name) and is_unfinished and 0 < _last_change(path) < time.time() - ABANDONED_S:
            remove_tree(path)


def _last_change(folder: DataPath) -> float:
    """Return the last change of an object or of a folder, seconds since the epoch; 0 if the store does not say."""
    if isinstance(folder, StorePath):
        return max((entry.changed_ns for entry in folder.entries(is_deep=True).values()), default=0) / 1e9
    # Links of shards have the times of the shards.
    folders: list[Path] = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    return max(path.stat().st_mtime for path in folders)


def names_in_versions(dataset: DataPath) -> dict[SplitName, set[str]]:
    """Return split -> names of the files that kept versions have: a run may be reading them by these names.

    Raises:
        DataError: A manifest is damaged.
    """
    named: dict[SplitName, set[str]] = {split: set() for split in SPLITS}
    for version in kept_versions(dataset):
        for split in present_splits(version):
            named[split] |= {*_shards(version, split), *_without_shards(version, split)}
    return named


def _remove_copies_of_current(dataset: DataPath) -> None:
    """Remove a kept version that is the dataset itself: its ingestion failed after the version before was kept."""
    with suppress(DataError):
        copy = DatasetPaths(dataset).version(version_digest(dataset))
        if copy.is_dir():
            (copy / MANIFEST_NAME).unlink()
            remove_tree(copy)
    versions = DatasetPaths(dataset).versions
    with suppress(OSError):
        if isinstance(versions, Path):
            versions.rmdir()  # empty
