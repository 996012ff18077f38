"""The server's gathering of a snapshot's parts: the center, each live worker's state, the data positions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from deepspark_ops.errors import ExchangeUnavailable, TrainingFailed
from deepspark_ops.events import Event, make_event
from deepspark_ops.exchange.server.shared_state import SharedState
from deepspark_ops.exchange.state.messages import CenterCopied, SnapshotComplete, SnapshotLeftOut, StateReceived
from deepspark_ops.exchange.state.pending_snapshot import CenterCopy, PendingSnapshot, Waiting, waiting_snapshots
from deepspark_ops.sizes import size_text

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 64
"""Bound of snapshots that wait for the driver; a further snapshot is left out."""
MAX_WAITING_BYTES: Final = 4 << 30
"""Bound of the waiting snapshots' bytes, for more than one snapshot."""
MAX_COPIED_BYTES: Final = 1 << 30
"""Bytes of unwritten center copies in memory, from which on no further center is copied."""


WritesInTurn = Callable[[Callable[[], None]], None]
"""Takes writes of snapshots' files, and runs the writes one after another, in their order."""


def at_once(write: Callable[[], None]) -> None:
    """Write in the caller's thread, for an exchange in one process. See ``WritesInTurn``."""
    write()


class WriterThread:
    """Writes in its own thread: no worker waits for a slow disk. See ``WritesInTurn``."""

    def __init__(self) -> None:
        """Start the thread; the thread ends with the process."""
        self._writes: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name="snapshot writer", daemon=True).start()

    def __call__(self, write: Callable[[], None]) -> None:
        """Queue a write."""
        self._writes.put(write)

    def _run(self) -> None:
        while True:
            self._writes.get()()


class SnapshotGathering:
    """Copies the center for due snapshots, and completes snapshots with all workers' states.

    Thread-safe.
    """

    def __init__(
        self,
        shared: SharedState,
        work: Path,
        copy_center: Callable[[], CenterCopy],
        emit: Callable[[Event], None],
        writes_in_turn: WritesInTurn,
        *,
        waits_at_end: bool = False,
    ) -> None:
        """Write below ``work``, the run's scratch folder.

        Args:
            shared: The run state, which has what is due.
            work: Scratch folder.
            copy_center: Copies the server's own part of a snapshot in memory; may raise ``ExchangeUnavailable`` where a
                chunk's lock was not to be had: the next call tries again.
            emit: Takes the events of snapshots that are left out.
            writes_in_turn: Writes files.
            waits_at_end: Whether the last snapshot's center is copied after the workers' states.
        """
        self._shared = shared
        self._waits_at_end = waits_at_end
        self._work = work
        self._copy_center = copy_center
        self._emit = emit
        self._write_in_turn = writes_in_turn
        self._left_out: list[int] = []
        self._copies: dict[int, CenterCopy] = {}  # not written yet
        self._completing: set[int] = set()
        self._lock = threading.RLock()  # ``at_once`` writes files while the lock is held

    def advance(self) -> None:
        """Copy the center for due snapshots in memory, and queue the writes of files.

        Every call that can make a snapshot due or complete ends here, so a restarted server continues with open
        snapshots. One thread at a time: the copy must exist before an answered worker continues.
        """
        if not self._has_work():
            return
        shared = self._shared
        with self._lock:
            with shared.lock:
                due = [iteration for iteration in shared.state.grants.due if self._may_be_copied(iteration)]
            for iteration in due:
                if self._is_left_out(iteration):
                    shared.record(SnapshotLeftOut(iteration))
                elif self._is_copied(iteration):
                    self._write_in_turn(partial(self._guarded, self._write_center, iteration))
        self._complete_ready()

    def _may_be_copied(self, iteration: int) -> bool:
        """Return whether the center of a due snapshot can be copied now.

        In a tree of centers the last snapshot waits for all workers' states: before a state, a worker brings the steps
        of its host to the root. No worker continues meanwhile.
        """
        grants = self._shared.state.grants
        is_late = self._waits_at_end and iteration >= grants.end and grants.awaits_states(iteration)
        return iteration not in self._copies and not is_late

    def leave_out_late(self) -> None:
        """After a restart, leave out snapshots with a lost copy and a clock that the run has passed."""
        with self._shared.lock:
            grants = self._shared.state.grants
            late = [
                iteration
                for iteration in grants.due
                if grants.acknowledged > iteration and grants.may_be_left_out(iteration)
            ]
        for iteration in late:
            self._shared.record(SnapshotLeftOut(iteration))
            self._tell(iteration, f"snapshot {iteration} is left out: the server ended before its center was written")

    def state_path(self, worker: int, iteration: int) -> Path | None:
        """Return the path of a worker's arrays for a snapshot; None if the snapshot does not await the arrays."""
        with self._shared.lock:
            is_awaited = self._shared.state.grants.awaits(worker, iteration)
        return PendingSnapshot(self._work, iteration).arrays(worker) if is_awaited else None

    def state_received(self, worker: int, iteration: int, meta: Mapping[str, Any]) -> None:
        """Note that the arrays of a worker's state are written."""
        if self.state_path(worker, iteration) is None:
            return
        PendingSnapshot(self._work, iteration).write_meta(worker, meta)
        self._shared.record(StateReceived(worker, iteration))
        self.advance()

    def _has_work(self) -> bool:
        with self._shared.lock:
            grants = self._shared.state.grants
            return len(grants.due) > len(self._copies) or len(grants.complete) > len(self._completing)

    def _is_left_out(self, iteration: int) -> bool:
        """Return whether a due snapshot has no room; report the first such snapshot, and the end of the shortage."""
        with self._shared.lock:
            may_be_left_out = self._shared.state.grants.may_be_left_out(iteration)
        copies = list(self._copies.values())
        copied_bytes = sum(copy.nbytes for copy in copies)
        waiting = waiting_snapshots(self._work) + Waiting(len(copies), copied_bytes)
        is_full = waiting.count >= MAX_WAITING or copied_bytes >= MAX_COPIED_BYTES
        is_full = is_full or (waiting.count > 1 and waiting.size >= MAX_WAITING_BYTES)
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

    def _is_copied(self, iteration: int) -> bool:
        try:
            self._copies[iteration] = self._copy_center()
        except ExchangeUnavailable as error:
            logger.warning("snapshot %d: %s; trying again", iteration, error)
            return False
        return True

    def _write_center(self, iteration: int) -> None:
        """Write a copy of the center, and complete the snapshots that missed only the copy."""
        if self._is_written(iteration, lambda pending: pending.write_center(self._copies[iteration])):
            self._shared.record(CenterCopied(iteration))
            self._copies.pop(iteration)
            self._complete_ready()
        else:
            self._copies.pop(iteration)

    def _complete_ready(self) -> None:
        """Queue the completion of snapshots without missing parts."""
        with self._lock:
            with self._shared.lock:
                ready = [
                    iteration for iteration in self._shared.state.grants.complete if iteration not in self._completing
                ]
            self._completing.update(ready)
        for iteration in ready:
            self._write_in_turn(partial(self._guarded, self._complete, iteration))

    def _guarded(self, write: Callable[[int], None], iteration: int) -> None:
        try:
            write(iteration)
        except TrainingFailed as error:
            logger.debug("snapshot %d: %s", iteration, error)  # SharedState.fail has logged it
        except Exception as error:
            # The outermost loop of the writer's thread: without the loop, no later snapshot would be written.
            logger.exception("snapshot %d", iteration)
            self._shared.fail(f"exchange server: {type(error).__name__}: {error}; see its log above")

    def _complete(self, iteration: int) -> None:
        if self._is_written(iteration, self._write_complete):
            self._shared.record(SnapshotComplete(iteration))
        self._completing.discard(iteration)

    def _is_written(self, iteration: int, write: Callable[[PendingSnapshot], None]) -> bool:
        pending = PendingSnapshot(self._work, iteration)
        try:
            write(pending)
        except OSError as error:
            self._shared.fail(
                f"{pending.folder}: cannot write snapshot {iteration} ({error.strerror}); free space and try again"
            )
            return False
        return True

    def _write_complete(self, pending: PendingSnapshot) -> None:
        metas = pending.metas()
        with self._shared.lock:
            leases = self._shared.state.retry_leases(pending.iteration, metas)
        pending.write_complete(metas, leases)
