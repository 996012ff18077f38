"""Detection of shards that are removed, damaged or replaced while a run reads the shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deepspark_ops.errors import DataError
from deepspark_ops.shards.manifest import DatasetManifest, read_manifest, sha256_of_file, shard_folder
from deepspark_ops.stores.store_path import DataPath, StorePath

Stamp = tuple[int, int]
"""Bytes of a shard's file, and the time of the last change in nanoseconds: a cheap sign of an unchanged file."""
REMEDY = 'put it back, or run "deepspark ingest" again; the training then goes on from its last snapshot'


def shard_stamps(split_folder: DataPath) -> dict[str, Stamp]:
    """Return name in the manifest -> stamp of the shard; empty for a split in a store.

    Raises:
        DataError: The manifest or a shard is missing.
    """
    folder = shard_folder(split_folder)
    if isinstance(folder, StorePath):
        return {}  # a fetch compares the digest
    return {shard.file: _stamp(folder / shard.file) for shard in read_manifest(split_folder).shards}


class ShardGuard:
    """Compares a split's shards with the stamps at the beginning of a run, before each read. For one thread.

    A file with another stamp is read whole once: a copy of the same bytes on another host is good at any time stamp. A
    change that keeps size and time, such as a disk's fault, stays unseen.
    """

    def __init__(self, folder: Path, manifest: DatasetManifest, stamps: Mapping[str, Stamp]) -> None:
        """Keep the shards' folder, the manifest, and the stamps at the beginning of the run."""
        self._folder = folder
        self._manifest = manifest
        self._good = dict(stamps)

    def check(self, shard: int) -> None:
        """Compare a shard with the beginning of the run, in microseconds.

        Raises:
            DataError: The shard is missing, or has other bytes.
        """
        record = self._manifest.shards[shard]
        path = self._folder / record.file
        stamp = _stamp(path)
        if stamp == self._good.get(record.file):
            return
        if stamp[0] != record.n_bytes:
            finding = f"{stamp[0]:,} bytes, the manifest says {record.n_bytes:,}"
        else:
            digest = sha256_of_file(_file_of(path))
            if digest == record.sha256:
                self._good[record.file] = stamp
                return
            finding = f"SHA-256 is {digest[:12]}..., the manifest says {record.sha256[:12]}..."
        msg = f"shard {path} has changed since the run began: {finding}; {REMEDY}"
        raise DataError(msg)


def _file_of(path: Path) -> Path:
    return path / "data.mdb" if path.suffix == ".lmdb" else path


def _stamp(path: Path) -> Stamp:
    try:
        status = os.stat(_file_of(path))
    except OSError as error:
        msg = f"shard {path}: {error.strerror}; the run reads it and the manifest names it; {REMEDY}"
        raise DataError(msg) from error
    return status.st_size, status.st_mtime_ns
