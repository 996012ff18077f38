"""The parts of a snapshot, as the server gathers them: the center, each live worker's state, the data positions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.events import Event, make_event
from deepspark_ops.exchange.server.shared_state import SharedState
from deepspark_ops.exchange.state.messages import CenterCopied, SnapshotComplete, SnapshotLeftOut, StateReceived
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot, waiting_snapshots
from deepspark_ops.sizes import size_text

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 64
"""Snapshots that may wait for the driver to write them; one more is left out."""
MAX_WAITING_BYTES: Final = 4 << 30
"""Bytes that they may have together, if there is more than one."""


class SnapshotGathering:
    """Copies the center for snapshots that are due, and completes those that no worker's state is missing from.

    Thread-safe.
    """

    def __init__(
        self,
        shared: SharedState,
        work: Path,
        write_center: Callable[[PendingSnapshot], None],
        emit: Callable[[Event], None],
    ) -> None:
        """Write below ``work``, the run's scratch folder.

        Args:
            shared: The run state, which has what is due.
            work: Scratch folder.
            write_center: Writes the server's own part of a snapshot; may raise ``OSError``, or ``ExchangeUnavailable``
                where a chunk's lock was not to be had: the next call tries again.
            emit: Takes the events of snapshots that are left out.
        """
        self._shared = shared
        self._work = work
        self._write_center = write_center
        self._emit = emit
        self._left_out: list[int] = []
        self._lock = threading.Lock()

    def advance(self) -> None:
        """Do what is due.

        Every call that can make a snapshot due or complete comes here, so a server that was killed on the way goes on
        where it was. One thread at a time: the copy must be there before a worker with an answer goes on.
        """
        if not self._has_work():
            return
        shared = self._shared
        with self._lock:
            with shared.lock:
                due = shared.state.grants.due
            for iteration in due:
                if self._is_left_out(iteration):
                    shared.record(SnapshotLeftOut(iteration))
                elif self._is_written(iteration, self._write_center):
                    shared.record(CenterCopied(iteration))
            with shared.lock:
                complete = shared.state.grants.complete
            for iteration in complete:
                if self._is_written(iteration, self._write_complete):
                    shared.record(SnapshotComplete(iteration))

    def state_path(self, worker: int, iteration: int) -> Path | None:
        """Return where a worker's arrays for a snapshot belong; None if they are not awaited (any more)."""
        with self._shared.lock:
            is_awaited = self._shared.state.grants.awaits(worker, iteration)
        return PendingSnapshot(self._work, iteration).arrays(worker) if is_awaited else None

    def state_received(self, worker: int, iteration: int, meta: Mapping[str, Any]) -> None:
        """The arrays of a worker's state are in place."""
        if self.state_path(worker, iteration) is None:
            return
        PendingSnapshot(self._work, iteration).write_meta(worker, meta)
        self._shared.record(StateReceived(worker, iteration))
        self.advance()

    def _has_work(self) -> bool:
        with self._shared.lock:
            grants = self._shared.state.grants
            return bool(grants.due or grants.complete)

    def _is_left_out(self, iteration: int) -> bool:
        """Return whether there is no room for a snapshot that is due; say so for the first one and after the last."""
        with self._shared.lock:
            may_be_left_out = self._shared.state.grants.may_be_left_out(iteration)
        waiting = waiting_snapshots(self._work)
        is_full = waiting.count >= MAX_WAITING or (waiting.count > 1 and waiting.size >= MAX_WAITING_BYTES)
        if not (is_full and may_be_left_out):
            if self._left_out:
                first, last = self._left_out[0], self._left_out[-1]
                self._tell(iteration, f"{len(self._left_out)} snapshots were left out, from {first} to {last}")
                self._left_out.clear()
            return False
        if not self._left_out:
            self._tell(
                iteration,
                f"snapshot {iteration} and those after it are left out for now: {waiting.count} before them"
                f" ({size_text(waiting.size)}) still wait for the driver, which stands still or whose disk is too"
                " slow; the solver's snapshot says how often one is taken",
            )
        self._left_out.append(iteration)
        return True

    def _tell(self, iteration: int, text: str) -> None:
        logger.warning("%s", text)
        self._emit(make_event("note", clock=iteration, text=text, warning=True))

    def _is_written(self, iteration: int, write: Callable[[PendingSnapshot], None]) -> bool:
        pending = PendingSnapshot(self._work, iteration)
        try:
            write(pending)
        except OSError as error:
            self._shared.fail(
                f"{pending.folder}: cannot write snapshot {iteration} ({error.strerror}); free space and try again"
            )
            return False
        except ExchangeUnavailable as error:
            logger.warning("snapshot %d: %s; trying again", iteration, error)
            return False
        return True

    def _write_complete(self, pending: PendingSnapshot) -> None:
        metas = pending.metas()
        with self._shared.lock:
            leases = self._shared.state.retry_leases(pending.iteration, metas)
        pending.write_complete(metas, leases)
