"""The shards of a split in a store: copied to the local disk as they are read, the next one ahead of its time."""

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
"""Of copies: shards of equal content share one, whatever they are called."""


class StagedShards:
    """Local copies of shards, checked by their digests. Nothing is fetched, and no thread runs, before the first use.

    While a shard is read, a thread fetches those that ``will_read`` named, else the next one that is not here; if there
    is room for the whole split it goes on until all are. Safe to use from several threads; not after a fork.

    Attributes:
        fits: Is there room for the whole split?
    """

    def __init__(self, split_folder: StorePath, manifest: DatasetManifest) -> None:
        """Keep what to fetch."""
        self._folder = split_folder
        self._manifest = manifest
        self._held: dict[int, StagedFiles] = {}
        self._wanted = threading.Condition()
        self._after: int | None = None
        self._coming: list[int] | None = None
        self._is_closed = False
        self.fits = manifest.n_bytes <= staging().n_bytes
        self._thread: threading.Thread | None = None

    def path(self, shard: int) -> Path:
        """Return the local copy of a shard, which stays until ``release``; waits while it is fetched.

        Raises:
            ConfigError: It is larger than the room for copies, or other processes use that for a minute.
            DataError: It is missing or damaged, or the store does not answer.
        """
        held = self._held[shard] = self._stage_in_time(shard)
        with self._wanted:
            self._after, self._is_closed = shard, False
            self._wanted.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._fetch_ahead, name="fetch shards", daemon=True)
                self._thread.start()
        return held.folder / _NAMES[self._manifest.shard_format]

    def will_read(self, shards: Sequence[int]) -> None:
        """Fetch those of these that are not here, in this order, and keep all of them longer than others."""
        copies = staging()
        keys = {shard: self._manifest.shards[shard].sha256 for shard in shards}
        for key in keys.values():
            copies.touch(key)
        with self._wanted:
            self._coming = [shard for shard, key in keys.items() if not copies.has(key)]

    def release(self, shard: int) -> None:
        """Let the copy be removed when room is needed."""
        if (held := self._held.pop(shard, None)) is not None:
            held.release()

    def close(self) -> None:
        """Release all copies and end the thread; a later use begins anew."""
        with self._wanted:
            self._is_closed = True
            self._wanted.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_JOIN_S)
        for shard in list(self._held):
            self.release(shard)

    def _stage_in_time(self, shard: int) -> StagedFiles:
        """Wait for room that other processes use: they go on to other shards."""
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
        """Fetch what comes after the shard that was asked for last, until told to end."""
        while (shard := self._next()) is not None:
            try:
                self._stage(shard).release()
            except DeepSparkError as error:
                _log.debug("shard %d is not fetched ahead: %s", shard, error)  # who reads it will say
                with self._wanted:
                    self._after = None

    def _next(self) -> int | None:
        with self._wanted:
            while True:
                if self._is_closed:
                    return None
                if self._after is not None and (shard := self._missing(self._after)) is not None:
                    self._after = shard if self.fits or self._coming is not None else None
                    return shard
                self._after = None
                self._wanted.wait(_LOOK_S)

    def _missing(self, after: int) -> int | None:
        """Return the next one of those to come that is not here; else the first after one, going on at the first."""
        shards, copies = self._manifest.shards, staging()
        if self._coming is not None:
            # Each is asked for once: one that was here and has gone again has been read by all.
            while self._coming:
                shard = self._coming.pop(0)
                if not copies.has(shards[shard].sha256):
                    return shard
            return None
        order = [(after + step) % len(shards) for step in range(1, len(shards))]
        if not self.fits:
            order = order[:1]
        return next((shard for shard in order if not copies.has(shards[shard].sha256)), None)
