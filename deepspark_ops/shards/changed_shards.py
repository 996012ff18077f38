"""Shards that are removed, damaged or replaced while a run reads them: told, never read as if nothing had happened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deepspark_ops.errors import DataError
from deepspark_ops.shards.manifest import DatasetManifest, read_manifest, sha256_of_file, shard_folder
from deepspark_ops.stores.store_path import DataPath, StorePath

Stamp = tuple[int, int]
"""Bytes of a shard's file, and when it was changed, in nanoseconds: what tells cheaply that it is as it was."""
REMEDY = 'put it back, or rerun task "ingest"; the same command then goes on from the last snapshot'


def shard_stamps(split_folder: DataPath) -> dict[str, Stamp]:
    """Return shard -> stamp of a split, by the names in its manifest; empty for one in a store.

    Raises:
        DataError: No manifest, or a shard is missing.
    """
    folder = shard_folder(split_folder)
    if isinstance(folder, StorePath):
        return {}  # copies are compared by their digests when they are fetched
    return {shard.file: _stamp(folder / shard.file) for shard in read_manifest(split_folder).shards}


class ShardGuard:
    """Compares a split's shards with what a run found at its beginning, before each read. Used by one thread.

    A file whose stamp is another one is read whole once: a copy of the same bytes on another host is good, whatever
    its time. What changes without size or time of the file is not seen: a disk that forgets.
    """

    def __init__(self, folder: Path, manifest: DatasetManifest, stamps: Mapping[str, Stamp]) -> None:
        """Take the shards' folder, what is said of them, and their stamps at the beginning."""
        self._folder = folder
        self._manifest = manifest
        self._good = dict(stamps)

    def check(self, shard: int) -> None:
        """Return if a shard is what it was; a matter of microseconds.

        Raises:
            DataError: It is gone, or its bytes are others.
        """
        record = self._manifest.shards[shard]
        path = self._folder / record.file
        stamp = _stamp(path)
        if stamp == self._good.get(record.file):
            return
        if stamp[0] != record.n_bytes:
            found = f"{stamp[0]:,} bytes, the manifest says {record.n_bytes:,}"
        else:
            digest = sha256_of_file(_file_of(path))
            if digest == record.sha256:
                self._good[record.file] = stamp
                return
            found = f"SHA-256 is {digest[:12]}..., the manifest says {record.sha256[:12]}..."
        msg = f"shard {path} has changed since the run began: {found}; {REMEDY}"
        raise DataError(msg)


def _file_of(path: Path) -> Path:
    return path / "data.mdb" if path.suffix == ".lmdb" else path


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(_file_of(path))
    except OSError as error:
        msg = f"shard {path}: {error.strerror}; the run reads it and the manifest names it; {REMEDY}"
        raise DataError(msg) from error
    return found.st_size, found.st_mtime_ns
