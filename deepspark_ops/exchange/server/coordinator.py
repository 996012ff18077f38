"""The control side of the exchange: grants, leases, sessions, rounds, events.

The same object serves the server's sockets and the exchange in one process.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar, cast

import numpy as np

from deepspark_ops.errors import ProtocolError, TrainingFailed, WorkerReplaced
from deepspark_ops.events import MAX_EVENT_BYTES, Event, append_event, make_event, parse_event
from deepspark_ops.exchange.center import worker_counters as columns
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.lost_updates import LostUpdates
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.server.center_updates import CenterUpdates
from deepspark_ops.exchange.server.report import ServerReport
from deepspark_ops.exchange.server.shared_state import SharedState
from deepspark_ops.exchange.server.snapshot_gathering import SnapshotGathering, WritesInTurn, at_once
from deepspark_ops.exchange.server.statistics_exchange import StatisticsExchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer, Wait
from deepspark_ops.exchange.state.messages import CONTROLS, HOLD_S, Join, Leave, Lose, Request, RequestGrant
from deepspark_ops.exchange.state.pending_snapshot import forget_pending
from deepspark_ops.exchange.transport.link import Welcome

logger = logging.getLogger(__name__)

EXPIRE_EVERY_S = 0.2

_Answer = TypeVar("_Answer")


def forget_run(settings: ExchangeSettings) -> None:
    """Remove journal and pending snapshots of an earlier driver's exchange.

    A starting driver continues from a finished snapshot, by its settings; only a restarted server continues from the
    journal.
    """
    settings.journal().unlink(missing_ok=True)
    forget_pending(settings.work)


def remove_journal(settings: ExchangeSettings) -> None:
    """Remove the journal of an ended run, and the journal's folder."""
    if settings.journal_folder is not None:
        shutil.rmtree(settings.journal_folder, ignore_errors=True)
    settings.journal().unlink(missing_ok=True)


class Coordinator:
    """Answers every control call of every worker. Thread-safe.

    Attributes:
        settings: The run.
        statistics: Gathers BatchNorm's statistics.
        updates: The server's own updates of the center.
        snapshots: Gathers the parts of snapshots.
    """

    def __init__(
        self,
        settings: ExchangeSettings,
        center: Center,
        clock: Callable[[], float] = time.monotonic,
        *,
        writes_in_turn: WritesInTurn = at_once,
    ) -> None:
        """Start a run, or continue the run of an existing journal.

        Args:
            settings: The run.
            center: Parameters; the caller closes the center.
            clock: Seconds, the same for all processes of the host and never going back.
            writes_in_turn: Writes snapshots' files.

        Raises:
            TrainingFailed: The journal cannot be written.
            DataError: The journal is damaged.
        """
        self.settings = settings
        self._center = center
        self._clock = clock
        self._shared = SharedState(settings, clock)
        chunks = Chunks(settings.n_params, settings.chunk, settings.running_strategy(), settings.statistics)
        self.updates = CenterUpdates(settings, center, chunks, self._shared)
        self.statistics = StatisticsExchange(center, settings.statistics)
        self.snapshots = SnapshotGathering(
            self._shared,
            settings.work,
            self.updates.copy_center,
            self._emit,
            writes_in_turn,
            waits_at_end=chunks.strategy.root_level is not None,
        )
        self._hosts: dict[int, str] = {}  # of workers that share a center; see ``RootLevel``
        self._noted_changes = -1
        self._next_expiry = 0.0
        watch = LostUpdates(center, chunks, rest_steps=round(settings.watch_rest_s / EXPIRE_EVERY_S))
        self._report = ServerReport(center, watch, clock)
        self._shared.state.read_epochs.clear()  # the server before has reported the epochs of the journal
        for note in self._shared.state.lease_notes:
            self._emit(make_event("note", clock=self._shared.state.grants.clock, text=note))
        if self._shared.is_resumed:
            self._resume()

    def join(self, worker: int, session: str, transport: str) -> Welcome:
        """Let a new process take the place of ``worker``."""
        self.settings.check_worker(worker)
        settings = self.settings
        with self._shared.lock:
            state = self._shared.state
            is_replaced = worker in state.grants.live and state.sessions.get(worker) != session
            self._shared.apply(Join(worker, session))
            self.updates.joined(worker, self._clock())
            self._note_live_workers()
            clock = state.grants.clock
        self._center.abandon(worker)
        self._center.admit(worker, session)
        if is_replaced:
            self._emit(make_event("worker_lost", clock=clock, worker=worker, reason="a new process takes its place"))
        self._emit(make_event("worker_joined", clock=clock, worker=worker, transport=transport))
        self.snapshots.advance()
        name = settings.running_strategy().name
        return Welcome(clock, settings.n_params, settings.n_workers, name, settings.alpha(), settings.chunk, transport)

    def check_session(self, worker: int, session: str) -> None:
        """Refuse the predecessor of a worker's present process.

        Raises:
            WorkerReplaced: A newer process is the worker now.
            ProtocolError: The worker has left, or never joined.
        """
        self.settings.check_worker(worker)
        with self._shared.lock:
            current = self._shared.state.sessions.get(worker)
        if current is None:
            msg = f"worker {worker}: session {session[:8]} is not known; it has left or never joined"
            raise ProtocolError(msg)
        if current != session:
            msg = f"worker {worker}: a newer process has taken its place; leaving"
            raise WorkerReplaced(msg)

    def answer(self, request: Request[_Answer]) -> _Answer:
        """Answer a worker's request, once for each number. Snapshots that are due then have a copy of the center.

        Raises:
            ProtocolError, ConfigError: The request is refused.
            TrainingFailed: The journal cannot be written; the run has failed.
        """
        self.expire()
        with self._shared.lock:
            state, now = self._shared.state, self._clock()
            is_new = not request.is_repeated(state)
            if is_new and isinstance(request, RequestGrant):
                answer = cast("_Answer", self._answer_grant(request))
            else:
                answer = self._shared.apply(request) if is_new else request.answer_again(state)
            state.grants.note_call(request.worker, now)
            self._note_live_workers()
            if isinstance(request, RequestGrant) and not _is_held(answer):
                has_steps = isinstance(answer, Grant) and answer.count > 0
                self.updates.granted(request.worker, now, has_steps=has_steps)
            clock = state.grants.clock
            read_epochs, state.read_epochs = state.read_epochs, []
        for epoch in read_epochs:
            self._emit(make_event("epoch", clock=clock, **asdict(epoch)))
        if request.changes_clock:
            self._close_round()
            self.updates.apply_rest()
            self.snapshots.advance()
        return answer

    def _note_live_workers(self) -> None:
        """Write the number of live workers to the center, for exchanges; the caller holds ``SharedState.lock``.

        In a tree of centers, the workers of a host exchange as one child of the root.
        """
        grants = self._shared.state.grants
        if grants.live_changes != self._noted_changes:
            self._noted_changes = grants.live_changes
            children = {self._hosts.get(worker, worker) for worker in grants.live} if self._hosts else grants.live
            self._center.note_live_workers(len(children))

    def _answer_grant(self, request: RequestGrant) -> GrantAnswer:
        """Answer a new request for steps; a worker that has to wait for others only reports the steps before."""
        if not self.updates.is_held(request.worker):
            answer: GrantAnswer = self._shared.apply(request)
            return answer
        if request.done:
            self._shared.apply(replace(request, want=0))
        return Wait(HOLD_S, is_expected=True)

    def note_host(self, worker: int, token: str) -> None:
        """Note that ``worker`` shares the center of this token with the other workers of the worker's host."""
        with self._shared.lock:
            self._hosts[worker] = token
            self._noted_changes = -1
            self._note_live_workers()

    def heartbeat(self, worker: int) -> None:
        """Note that a worker lives."""
        with self._shared.lock:
            self._shared.state.grants.note_call(worker, self._clock())

    def event(self, worker: int, line: str) -> None:
        """Append a worker's event, as its JSON line.

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
        with self._shared.lock:
            self._shared.apply(Leave(worker))
            self._note_live_workers()
            is_last = not self._shared.state.grants.n_live
        self._center.abandon(worker)
        self._close_round()
        self.snapshots.advance()
        if is_last:
            self._send_report()

    def lose(self, worker: int, session: str, reason: str) -> None:
        """Give up a worker whose process is gone; do nothing if a newer process has taken the worker's place."""
        with self._shared.lock:
            state = self._shared.state
            is_known = state.sessions.get(worker) == session and worker in state.grants.live
            if is_known:
                self._shared.apply(Lose(worker))
                self._note_live_workers()
            clock = state.grants.clock
        if is_known:
            self._drop({worker: reason}, clock)

    def expire(self) -> None:
        """Release grants and leases of silent workers; cheap enough for every call and for a timer.

        A failing journal fails the run (``fail``); no error is raised here.
        """
        now = self._clock()
        lost: dict[int, str] = {}
        try:
            with self._shared.lock:
                if now < self._next_expiry:
                    return
                self._next_expiry = now + EXPIRE_EVERY_S
                grants = self._shared.state.grants
                for worker in grants.silent(now):
                    self._shared.apply(Lose(worker))
                    lost[worker] = "silent"
                self._note_live_workers()
                clock = grants.clock
            if lost:
                self._drop(lost, clock)
        except TrainingFailed:
            return  # noted by SharedState
        for worker, count in self._report.new_refusals():
            self._tell_refusals(worker, count, clock)
        if self._report.is_due:
            self._send_report()
        else:
            self._report.watch()

    def _tell_refusals(self, worker: int, count: int, clock: int) -> None:
        text = f"a push that is not finite or absurdly large was refused, {count} so far; the center keeps what it had"
        logger.warning("worker %d: %s", worker, text)
        self._emit(make_event("note", clock=clock, worker=worker, text=text, refused_pushes=count))

    def _drop(self, lost: dict[int, str], clock: int) -> None:
        """Close the open exchanges of lost workers; ``lost`` maps a worker to the reason."""
        for worker, reason in lost.items():
            self._center.abandon(worker)
            self._emit(make_event("worker_lost", clock=clock, worker=worker, reason=reason))
        self._close_round()
        self.snapshots.advance()

    def _send_report(self) -> None:
        data = self._report.next()
        if data is None:
            return
        with self._shared.lock:
            clock = self._shared.state.grants.clock
        self._emit(make_event("server", clock=clock, **data))

    def await_round(
        self, worker: int, sequence: int, note: RoundNote | None = None, wait_s: float | None = None
    ) -> int | None:
        """Note a worker's complete push, and wait for the end of the round.

        Args:
            worker: Sender of the push.
            sequence: Number of the worker's exchange.
            note: The worker's report of the push.
            wait_s: Longest wait, seconds; default ``ROUND_WAIT_S``.

        Returns:
            The tau of all workers from now on, 0 for a tau of each worker, once the round is over and the center moved;
            None after ``wait_s``: call again.
        """
        self.expire()
        with self._shared.lock:
            now = self._clock()
            self.updates.pushed(worker, sequence, now, note)
            self._shared.state.grants.note_call(worker, now)
        self._close_round()
        return self.updates.await_round(worker, sequence, wait_s)

    def _close_round(self) -> None:
        for event in self.updates.close_round(self._clock()):
            self._emit(event)

    def control(self, call: str) -> None:
        """Carry out a driver's call, one of ``CONTROLS``; may be repeated.

        Raises:
            ProtocolError: No such call.
            TrainingFailed: The journal cannot be written; the run has failed.
        """
        kind = CONTROLS.get(call)
        if kind is None:
            msg = f"control call {call[:40]!r} is unknown; known: {', '.join(CONTROLS)}"
            raise ProtocolError(msg)
        self._shared.record(kind())
        self.snapshots.advance()

    def fail(self, message: str) -> None:
        """See ``SharedState.fail``."""
        self._shared.fail(message)

    def status(self) -> dict[str, Any]:
        """Return the run's state as plain JSON values; see ``ExchangeStatus``."""
        self.expire()
        counters = self._center.counters.astype(np.int64)
        with self._shared.lock:
            state = self._shared.state
            grants = state.grants
            return {
                "clock": grants.clock,
                "acknowledged": grants.acknowledged,
                "finished": grants.finished,
                "live_workers": list(grants.live_workers),
                "reissued_grants": grants.n_reissued,
                "snapshots": list(state.snapshots),
                "failure": self._shared.failure,
                "exchanges": counters[:, columns.ENDED].tolist(),
                "applied": self.updates.applied(),
                "staleness_sums": counters[:, columns.STALENESS].tolist(),
                "overlap_sums": counters[:, columns.OVERLAPS].tolist(),
                "duplicate_chunks": int(self._center.all_counters[..., columns.DUPLICATES].sum()),
                "uncertain_chunks": int(self._center.all_counters[..., columns.UNCERTAIN].sum()),
                "moved_bytes": int(self._center.all_counters[..., columns.MOVED_BYTES].sum()),
                "refused_pushes": self._report.refused(),
            }

    def close(self) -> None:
        """Close the journal."""
        self._shared.close()

    def _emit(self, event: Event) -> None:
        try:
            append_event(self.settings.events, event)
        except FileNotFoundError:
            self.fail(f"{self.settings.events.parent}: the run's folder was removed or renamed")
        except OSError as error:
            self.fail(
                f"{self.settings.events}: cannot append ({error.strerror}); free space on that disk and start the run"
                " again: it goes on from its last snapshot"
            )

    def _resume(self) -> None:
        """Continue after a restart: count no silence during the restart, and finish open snapshots."""
        now = self._clock()
        with self._shared.lock:
            grants = self._shared.state.grants
            for worker in grants.live_workers:
                grants.note_call(worker, now)
        self.snapshots.leave_out_late()
        self.snapshots.advance()


def _is_held(answer: object) -> bool:
    """Return whether a worker without steps is expected in the next round."""
    return isinstance(answer, Wait) and answer.is_expected
