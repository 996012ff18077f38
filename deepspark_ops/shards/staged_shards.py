"""Local copies of the shards of a split in a store; the next shard is fetched ahead."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deepspark_ops.errors import DataError, DeepSparkError
from deepspark_ops.shards.manifest import DatasetManifest
from deepspark_ops.stores.staging import NoRoomNow, StagedFiles, staging
from deepspark_ops.stores.store_path import StorePath

_log = logging.getLogger(__name__)
_JOIN_S: Final = 120.0
_LOOK_S: Final = 10.0
_ROOM_S: Final = 60.0
_POLL_S: Final = 0.05
_NAMES: Final = {"lmdb": "shard.lmdb", "hdf5": "shard.h5"}
"""Names of copies: shards of equal content share a copy."""


class StagedShards:
    """Local copies of shards, checked by digest. No shard is fetched, and no thread runs, before the first use.

    While a shard is read, a thread fetches the shards of ``will_read``, else the next missing shard. If the whole split
    fits, the thread fetches all shards. Safe to use from several threads; not after a fork.

    Attributes:
        fits: Whether the whole split fits into the room for copies.
    """

    def __init__(self, split_folder: StorePath, manifest: DatasetManifest) -> None:
        """Keep the folder and the manifest."""
        self._folder = split_folder
        self._manifest = manifest
        self._copies: dict[int, StagedFiles] = {}
        self._changed = threading.Condition()
        self._last_shard: int | None = None
        self._coming: list[int] | None = None
        self._is_closed = False
        self.fits = manifest.n_bytes <= staging().n_bytes
        self._thread: threading.Thread | None = None

    def path(self, shard: int) -> Path:
        """Return the local copy of a shard, which stays until ``release``; wait for the fetch.

        Raises:
            ConfigError: The shard is larger than the room for copies, or other processes use the room for a minute.
            DataError: The shard is missing or damaged, or the store does not answer.
        """
        copy = self._copies[shard] = self._stage_in_time(shard)
        with self._changed:
            self._last_shard, self._is_closed = shard, False
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._fetch_ahead, name="fetch shards", daemon=True)
                self._thread.start()
        return copy.folder / _NAMES[self._manifest.shard_format]

    def will_read(self, shards: Sequence[int]) -> None:
        """Fetch the missing ones of these shards in this order, and keep these shards longer than other shards."""
        copies = staging()
        keys = {shard: self._manifest.shards[shard].sha256 for shard in shards}
        for key in keys.values():
            copies.touch(key)
        with self._changed:
            self._coming = [shard for shard, key in keys.items() if not copies.has(key)]

    def release(self, shard: int) -> None:
        """Let the copy be removed when room is needed."""
        if (copy := self._copies.pop(shard, None)) is not None:
            copy.release()

    def close(self) -> None:
        """Release all copies and end the thread; a later use begins anew."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_JOIN_S)
        for shard in list(self._copies):
            self.release(shard)

    def _stage_in_time(self, shard: int) -> StagedFiles:
        """Stage a shard; wait for room in use, since other processes go on to other shards."""
        deadline = time.monotonic() + _ROOM_S
        while True:
            try:
                return self._stage(shard)
            except NoRoomNow:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def _stage(self, shard: int) -> StagedFiles:
        record = self._manifest.shards[shard]
        path = self._folder / record.file
        name = _NAMES[self._manifest.shard_format]
        if self._manifest.shard_format == "lmdb":
            path, name = path / "data.mdb", f"{name}/data.mdb"
        try:
            return staging().files(record.sha256, {name: path}, {name: record.sha256})
        except OSError as error:
            msg = f"shard {error.filename or path}: {error.strerror or error}"
            raise DataError(msg) from error

    def _fetch_ahead(self) -> None:
        """Fetch the shards after the last shard that was read, until the end."""
        while (shard := self._next()) is not None:
            try:
                self._stage(shard).release()
            except DeepSparkError as error:
                _log.debug("shard %d is not fetched ahead: %s", shard, error)  # a reader of the shard raises the error
                with self._changed:
                    self._last_shard = None

    def _next(self) -> int | None:
        with self._changed:
            while True:
                if self._is_closed:
                    return None
                if self._last_shard is not None and (shard := self._missing(self._last_shard)) is not None:
                    self._last_shard = shard if self.fits or self._coming is not None else None
                    return shard
                self._last_shard = None
                self._changed.wait(_LOOK_S)

    def _missing(self, last_shard: int) -> int | None:
        """Return the next missing shard of ``will_read``; without ``will_read`` the next missing shard, cyclically."""
        shards, copies = self._manifest.shards, staging()
        if self._coming is not None:
            # Prefetch each shard once: every worker has read a shard that was cached and evicted.
            while self._coming:
                shard = self._coming.pop(0)
                if not copies.has(shards[shard].sha256):
                    return shard
            return None
        order = [(last_shard + step) % len(shards) for step in range(1, len(shards))]
        if not self.fits:
            order = order[:1]
        return next((shard for shard in order if not copies.has(shards[shard].sha256)), None)
