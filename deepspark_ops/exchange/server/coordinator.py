"""The control side of the exchange: grants, leases, sessions, events, snapshots.

The same object stands behind the server's sockets and in one process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deepspark_ops.errors import DeepSparkError, ProtocolError, WorkerReplaced
from deepspark_ops.events import MAX_EVENT_BYTES, Event, append_event, make_event, parse_event
from deepspark_ops.exchange.center import worker_counters as columns
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.lost_updates import PushWatch
from deepspark_ops.exchange.center.pushes import settle_all_unfinished
from deepspark_ops.exchange.rounds.round_closing import RoundContents, RoundNote
from deepspark_ops.exchange.rounds.rounds import Rounds
from deepspark_ops.exchange.server.report import ServerReport
from deepspark_ops.exchange.server.statistics_exchange import StatisticsExchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot, consumed_samples, forget_pending
from deepspark_ops.exchange.state.run_state import Journal, RunBooks
from deepspark_ops.exchange.state.state_calls import GRANT_CALLS, TIMED_CALLS
from deepspark_ops.exchange.transport.link import Welcome

logger = logging.getLogger(__name__)

EXPIRE_EVERY_S = 0.2
JOURNAL_FILE = "exchange.journal"
ROUND_WAIT_S = 2.0
"""How long a worker waits for the others, at most, before it gives a sign of life by asking again."""


def forget_run(work: Path) -> None:
    """Remove what an earlier driver's exchange left in a run's scratch folder: its books and its pending snapshots.

    A driver that starts goes on from a finished snapshot, with settings that say so; only a server that is started
    again goes on from the books.
    """
    (work / JOURNAL_FILE).unlink(missing_ok=True)
    forget_pending(work)


class Coordinator:
    """Answers every control call of every worker; thread-safe behind one small lock.

    The lock is never held while vectors move or files of vectors are written.
    """

    def __init__(self, settings: ExchangeSettings, center: Center, clock: Callable[[], float] = time.monotonic) -> None:
        """Start a run, or go on with the one whose journal lies in ``settings.work``.

        Args:
            settings: The run.
            center: Where the parameters are; stays the caller's.
            clock: Seconds, the same for all processes of the host and never going back.
        """
        self.settings = settings
        self._center = center
        self._clock = clock
        self._lock = threading.Lock()
        self._round_over = threading.Condition(self._lock)
        self._rounds = Rounds()
        self._chunks = Chunks(settings.n_params, settings.chunk, settings.running_strategy(), settings.statistics)
        strategy = self._chunks.strategy
        self._closer = strategy.closer(settings.solver) if strategy.round == "all" else None
        self._snapshot_lock = threading.Lock()
        self.statistics = StatisticsExchange(center, settings.statistics, settings.n_workers)
        self._books = RunBooks(settings)
        self._journal = Journal(settings.work / JOURNAL_FILE)
        self._next_expiry = 0.0
        watch = PushWatch(center, self._chunks, rest_steps=round(settings.watch_rest_s / EXPIRE_EVERY_S))
        self._report = ServerReport(center, watch, clock)
        self._failure: str | None = None
        for note in self._books.lease_notes:
            self._emit(make_event("note", text=note))
        if self._journal.replay(self._books):
            self._resume()

    def join(self, worker: int, session: str, transport: str) -> Welcome:
        """Let a new process take the place of ``worker``."""
        self.settings.check_worker(worker)
        settings = self.settings
        with self._lock:
            is_replaced = worker in self._books.grants.live_workers and self._books.sessions.get(worker) != session
            self._record("join", worker, session, self._clock())
            self._rounds.joined(worker)
            clock = self._books.grants.clock
        self._center.abandon(worker)
        self._center.admit(worker, session)
        if is_replaced:
            self._emit(make_event("worker_lost", clock=clock, worker=worker, reason="a new process takes its place"))
        self._emit(make_event("worker_joined", clock=clock, worker=worker, transport=transport))
        self._finish_snapshots()
        name = settings.running_strategy().name
        return Welcome(clock, settings.n_params, settings.n_workers, name, settings.alpha(), settings.chunk, transport)

    def check_session(self, worker: int, session: str) -> None:
        """Refuse a process whose place was taken by a newer one.

        Raises:
            WorkerReplaced: A newer process is the worker now.
            ProtocolError: The worker has left, or never joined.
        """
        self.settings.check_worker(worker)
        with self._lock:
            current = self._books.sessions.get(worker)
        if current is None:
            msg = f"worker {worker}: session {session[:8]} is not known; it has left or never joined"
            raise ProtocolError(msg)
        if current != session:
            msg = f"worker {worker}: a newer process has taken its place; leaving"
            raise WorkerReplaced(msg)

    def answer(self, worker: int, request: int, call: str, *args: Any) -> Any:
        """Make a control call for a worker, once for each request number; returns plain JSON values.

        Args:
            worker: Who asks.
            request: Number of the request, rising by one within a session; the same number gets the same answer.
            call: ``request_grant`` (want), ``request_next`` (want, id of the grant still held), ``acknowledge``
                (grant id; snapshots that become due have copied the center when this returns), ``lease`` (dataset),
                ``return_lease`` (dataset, lease id, consumed).
            args: Of the call.
        """
        self.expire()
        now = self._clock()
        timed = (*args, now) if call in TIMED_CALLS else args
        with self._lock:
            answer, is_new = self._record("once", worker, request, call, list(timed))
            self._books.grants.seen(worker, now)
            clock = self._books.grants.clock
            if call in GRANT_CALLS:
                self._rounds.granted(worker, has_steps=answer.get("grant", {}).get("count", 0) > 0)
        self._close_round()
        if call == "return_lease" and is_new and answer is not None:
            self._emit(make_event("epoch", clock=clock, **answer))
        self._finish_snapshots()
        return answer

    def heartbeat(self, worker: int) -> None:
        """A worker lives."""
        with self._lock:
            self._books.grants.seen(worker, self._clock())

    def event(self, worker: int, line: str) -> None:
        """Append a worker's event, given as its JSON line.

        Raises:
            ProtocolError: Not one event of this version, or in another worker's name.
        """
        event = parse_event(line) if len(line) <= MAX_EVENT_BYTES and "\n" not in line else None
        if event is None or event.worker != worker:
            msg = f"worker {worker}: not an event of its own: {line[:80]!r}"
            raise ProtocolError(msg)
        self._emit(event)
        self.heartbeat(worker)

    def leave(self, worker: int) -> None:
        """See ``WorkerLink.leave``."""
        with self._lock:
            self._record("leave", worker)
            is_last = not self._books.grants.live_workers
        self._center.abandon(worker)
        self._close_round()
        self._finish_snapshots()
        if is_last:
            self._send_report()

    def lose(self, worker: int, session: str, reason: str) -> None:
        """A worker's process is known to be gone; nothing happens if a newer one has taken its place."""
        with self._lock:
            known = self._books.sessions.get(worker) == session and worker in self._books.grants.live_workers
            if known:
                self._record("lose", worker)
            clock = self._books.grants.clock
        if known:
            self._center.abandon(worker)
            self._emit(make_event("worker_lost", clock=clock, worker=worker, reason=reason))
            self._close_round()
            self._finish_snapshots()

    def expire(self) -> None:
        """Take back what silent workers hold; cheap enough for every call and for a timer."""
        now = self._clock()
        with self._lock:
            if now < self._next_expiry:
                return
            self._next_expiry = now + EXPIRE_EVERY_S
            lost = self._books.grants.silent(now)
            for worker in lost:
                self._record("lose", worker)
            clock = self._books.grants.clock
        for worker in lost:
            self._center.abandon(worker)
            self._emit(make_event("worker_lost", clock=clock, worker=worker, reason="silent"))
        if lost:
            self._close_round()
            self._finish_snapshots()
        if self._report.is_due:
            self._send_report()
        else:
            self._report.watch()

    def _send_report(self) -> None:
        data = self._report.next()
        if data is None:
            return
        with self._lock:
            clock = self._books.grants.clock
        self._emit(make_event("server", clock=clock, **data))

    def await_round(self, worker: int, sequence: int, note: RoundNote | None = None) -> int | None:
        """A worker has pushed everything of an exchange and waits for the others.

        Args:
            worker: Who.
            sequence: Of its exchange.
            note: What it says of what it pushed.

        Returns:
            The tau that all take from now on, 0 for each its own, once the round is over and the center moved; None
            after a while: ask again.
        """
        self.expire()
        with self._lock:
            self._rounds.pushed(worker, sequence, note)
            self._books.grants.seen(worker, self._clock())
        self._close_round()
        wait_s = min(ROUND_WAIT_S, self.settings.exchange_timeout_s / 4)
        with self._round_over:
            is_over = self._round_over.wait_for(lambda: self._rounds.is_released(worker, sequence), wait_s)
            return self._rounds.comm_period if is_over else None

    def _close_round(self) -> None:
        """Apply the present round if everybody who is expected has pushed."""
        if self._closer is None:
            return
        with self._lock:
            if not self._rounds.is_complete(self._books.grants.live_workers):
                return
            notes = self._rounds.close()
            clock = self._books.grants.clock
        try:
            texts = self._closer.close(self.round_contents(notes))
        except DeepSparkError as error:
            self.fail(str(error))
            texts = []
        for text in texts:
            self._emit(make_event("note", clock=clock, text=text))
        with self._round_over:
            self._rounds.open()
            self._round_over.notify_all()

    def round_contents(self, notes: dict[int, RoundNote]) -> RoundContents:
        """Return what a closer works on."""
        settle_all_unfinished(self._center, self._chunks)
        center = self._center
        return RoundContents(center.vector, center.extras, center.counts, self._chunks.spans, notes)

    def state_path(self, worker: int, iteration: int) -> Path | None:
        """Return where a worker's arrays for a snapshot belong; None if nobody waits for them (any more)."""
        with self._lock:
            awaited = self._books.grants.awaits(worker, iteration)
            self._books.grants.seen(worker, self._clock())
        return self._pending(iteration).arrays(worker) if awaited else None

    def state_received(self, worker: int, iteration: int, meta: Mapping[str, Any]) -> None:
        """The arrays of a worker's state are in place."""
        if self.state_path(worker, iteration) is None:
            return
        self._pending(iteration).write_meta(worker, meta)
        with self._lock:
            self._record("state_received", worker, iteration)
        self._finish_snapshots()

    def fail(self, message: str) -> None:
        """Note what makes the run pointless; the driver sees it at its next look. The first one stays."""
        logger.error("%s", message)
        with self._lock:
            self._failure = self._failure or message

    def status(self) -> dict[str, Any]:
        """Return the run's state as plain JSON values; see ``ExchangeStatus``."""
        self.expire()
        slots = self._center.slots.astype(np.int64)
        with self._lock:
            grants = self._books.grants
            return {
                "clock": grants.clock,
                "acknowledged": grants.acknowledged,
                "finished": grants.finished,
                "live_workers": list(grants.live_workers),
                "reissued_grants": grants.n_reissued,
                "snapshots": list(self._books.snapshots),
                "failure": self._failure,
                "exchanges": slots[:, columns.ENDED].tolist(),
                "applied": self._applied(),
                "staleness_sums": slots[:, columns.STALENESS].tolist(),
                "overlap_sums": slots[:, columns.OVERLAPS].tolist(),
                "duplicate_chunks": int(self._center.all_slots[..., columns.DUPLICATES].sum()),
                "uncertain_chunks": int(self._center.all_slots[..., columns.UNCERTAIN].sum()),
            }

    def _applied(self) -> int:
        """Return how many exchanges the center has taken; see ``ExchangeStatus``."""
        center = self._center
        gathers = self._chunks.strategy.round == "pushes"
        held = int(center.counts.max(initial=0)) if gathers else 0
        return max(0, int(center.slots[:, columns.ENDED].sum()) - held)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _record(self, call: str, *args: Any) -> Any:
        return self._journal.record(self._books, call, args)

    def _locked_record(self, call: str, *args: Any) -> None:
        with self._lock:
            self._record(call, *args)

    def _emit(self, event: Event) -> None:
        try:
            append_event(self.settings.events, event)
        except OSError as error:
            self.fail(f"{self.settings.events}: cannot append ({error.strerror})")

    def _finish_snapshots(self) -> None:
        """Copy the center for snapshots that are due; put down those that nobody's state is missing from.

        Every call that can make one due or complete comes here, so a server that was killed on the way goes on where
        it was. One thread at a time: the copy must be there before a worker with an answer goes on.
        """
        if not self._has_snapshot_work():
            return
        with self._snapshot_lock:
            with self._lock:
                due = self._books.grants.due
            for iteration in due:
                if self._written(iteration, self._write_center):
                    self._locked_record("copied", iteration)
            with self._lock:
                complete = self._books.grants.complete
            for iteration in complete:
                if self._written(iteration, self._write_complete):
                    self._locked_record("closed", iteration)

    def _has_snapshot_work(self) -> bool:
        with self._lock:
            return bool(self._books.grants.due or self._books.grants.complete)

    def _pending(self, iteration: int) -> PendingSnapshot:
        return PendingSnapshot(self.settings.work, iteration)

    def _written(self, iteration: int, write: Callable[[PendingSnapshot], None]) -> bool:
        pending = self._pending(iteration)
        try:
            write(pending)
        except OSError as error:
            self.fail(
                f"{pending.folder}: cannot write snapshot {iteration} ({error.strerror}); free space and try again"
            )
            return False
        return True

    def _write_center(self, pending: PendingSnapshot) -> None:
        applied = self._applied()
        pending.write_center(self._center, self._chunks.strategy, applied)

    def _write_complete(self, pending: PendingSnapshot) -> None:
        metas = pending.metas()
        with self._lock:
            leases = {name: book.to_state(consumed_samples(metas, name)) for name, book in self._books.leases.items()}
        pending.write_complete(metas, leases)

    def _resume(self) -> None:
        """After a restart: nobody was silent while there was no server; finish what was begun."""
        now = self._clock()
        with self._lock:
            for worker in self._books.grants.live_workers:
                self._books.grants.seen(worker, now)
        self._finish_snapshots()
