"""What the server itself does with the center: it closes rounds, applies what is gathered, copies it for snapshots."""

from __future__ import annotations

import threading

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.events import Event, make_event
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.pushes import apply_rest, settle_all_unfinished
from deepspark_ops.exchange.center.worker_counters import ENDED
from deepspark_ops.exchange.rounds.round_closing import RoundContents, RoundNote
from deepspark_ops.exchange.rounds.rounds import Rounds
from deepspark_ops.exchange.server.shared_state import SharedState
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.pending_snapshot import CenterCopy

ROUND_WAIT_S = 2.0
"""How long a worker waits for the others, at most, before it repeats its call, which shows that it lives."""


class CenterUpdates:
    """The server's own changes of the center, one at a time. Thread-safe.

    Workers push meanwhile: where that matters, the chunk's lock is taken.
    """

    def __init__(self, settings: ExchangeSettings, center: Center, chunks: Chunks, shared: SharedState) -> None:
        """Change ``center``, which stays the caller's, as the run's strategy has it."""
        self._center = center
        self._chunks = chunks
        self._shared = shared
        self._wait_s = min(ROUND_WAIT_S, settings.exchange_timeout_s / 4)
        strategy = chunks.strategy
        self._closer = strategy.closer(settings.solver) if strategy.round == "all" else None
        self._rounds = Rounds(has_begun=shared.is_resumed)
        self._last_round: frozenset[int] = frozenset()  # grants whose steps it pushed
        self._round_over = threading.Condition(shared.lock)
        self._lock = threading.Lock()

    def joined(self, worker: int, now: float) -> None:
        """A new process took a worker's place; the caller holds ``SharedState.lock``."""
        self._rounds.joined(worker, now)

    def granted(self, worker: int, now: float, *, has_steps: bool) -> None:
        """A worker was answered with a grant or without; the caller holds ``SharedState.lock``."""
        self._rounds.granted(worker, now, has_steps=has_steps)

    def is_held(self, worker: int) -> bool:
        """Whether a worker is given no steps yet; the caller holds ``SharedState.lock``.

        A snapshot that the last round completes is due when all of that round have acknowledged: a worker that went
        on before would send a later state than the center's. None of them waits for another by then, and one that is
        lost holds no grant any more.
        """
        return self._shared.state.grants.snapshot_waits_for(self._last_round, worker)

    def pushed(self, worker: int, sequence: int, now: float, note: RoundNote | None) -> None:
        """A worker has pushed everything of its exchange ``sequence``; the caller holds ``SharedState.lock``."""
        self._rounds.pushed(worker, sequence, now, note)

    def await_round(self, worker: int, sequence: int, wait_s: float | None = None) -> int | None:
        """Return the tau of the round with that push once it is over; None after ``wait_s`` (``ROUND_WAIT_S``)."""
        wait_s = self._wait_s if wait_s is None else wait_s
        with self._round_over:
            is_over = self._round_over.wait_for(lambda: self._rounds.is_released(worker, sequence), wait_s)
            return self._rounds.comm_period if is_over else None

    def close_round(self, now: float) -> list[Event]:
        """Apply the present round if every worker that is expected has pushed; returns notes for the user.

        A round that cannot be applied fails the run, and the workers go on.
        """
        if self._closer is None:
            return []
        with self._shared.lock:
            grants = self._shared.state.grants
            if not self._rounds.is_complete(grants.live_workers, now):
                return []
            self._last_round = grants.open_grants(self._rounds.waiting)
            notes = self._rounds.close()
            clock = grants.clock
        try:
            with self._lock:
                texts = self._closer.close(self.round_contents(notes))
        except DeepSparkError as error:
            self._shared.fail(str(error))
            texts = []
        with self._round_over:
            self._rounds.open()
            self._round_over.notify_all()
        return [make_event("note", clock=clock, text=text) for text in texts]

    def round_contents(self, notes: dict[int, RoundNote]) -> RoundContents:
        """Return what a closer works on."""
        settle_all_unfinished(self._center, self._chunks)
        center = self._center
        return RoundContents(center.vector, center.extras, center.counts, self._chunks.spans, notes)

    def apply_rest(self) -> None:
        """At the end of the run, apply what the strategy has gathered: no push will complete it any more.

        Raises:
            ExchangeUnavailable: A chunk's lock was not to be had; to be called again.
        """
        if self._chunks.strategy.round != "pushes":
            return
        with self._shared.lock:
            reached_end = self._shared.state.grants.reached_max_iter
        with self._lock:
            if reached_end and self._center.counts.any():
                apply_rest(self._center, self._chunks)

    def applied(self) -> int:
        """Return how many exchanges the center has taken; see ``ExchangeStatus``."""
        gathers = self._chunks.strategy.round == "pushes"
        held = int(self._center.counts.max(initial=0)) if gathers else 0
        return max(0, int(self._center.counters[:, ENDED].sum()) - held)

    def copy_center(self) -> CenterCopy:
        """Copy the center and what the strategy keeps beside it.

        Raises:
            ExchangeUnavailable: A chunk's lock was not to be had; to be called again.
        """
        self.apply_rest()
        with self._lock:
            return CenterCopy.of(self._center, self._chunks, self.applied())
