"""The server's own changes of the center: closing rounds, applying gathered pushes, copies for snapshots."""

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
"""The longest wait in a round before a worker repeats its call, and by the call shows that the worker lives."""


class CenterUpdates:
    """The server's own changes of the center, in turn. Thread-safe.

    Workers push meanwhile; the chunk's lock is taken where a push would conflict.
    """

    def __init__(self, settings: ExchangeSettings, center: Center, chunks: Chunks, shared: SharedState) -> None:
        """Change ``center`` by the rules of the run's strategy; the caller keeps ``center``."""
        self._center = center
        self._chunks = chunks
        self._shared = shared
        self._wait_s = min(ROUND_WAIT_S, settings.exchange_timeout_s / 4)
        strategy = chunks.strategy
        self._closer = strategy.closer(settings.solver) if strategy.round == "all" else None
        self._rounds = Rounds(has_begun=shared.is_resumed)
        self._last_round: frozenset[int] = frozenset()  # grants of the steps in the last round's pushes
        self._round_over = threading.Condition(shared.lock)
        self._lock = threading.Lock()

    def joined(self, worker: int, now: float) -> None:
        """Note a new process of a worker; the caller holds ``SharedState.lock``."""
        self._rounds.joined(worker, now)

    def granted(self, worker: int, now: float, *, has_steps: bool) -> None:
        """Note the answer to a request for steps; the caller holds ``SharedState.lock``."""
        self._rounds.granted(worker, now, has_steps=has_steps)

    def is_held(self, worker: int) -> bool:
        """Return whether a worker has to wait for steps; the caller holds ``SharedState.lock``.

        A snapshot of the last round is due when all workers of the round have acknowledged. A worker that continued
        earlier would send a later state than the center's. No worker of the round waits for another at this point, and
        a lost worker holds no grant.
        """
        return self._shared.state.grants.snapshot_waits_for(self._last_round, worker)

    def pushed(self, worker: int, sequence: int, now: float, note: RoundNote | None) -> None:
        """Note that all chunks of exchange ``sequence`` are pushed; the caller holds ``SharedState.lock``."""
        self._rounds.pushed(worker, sequence, now, note)

    def await_round(self, worker: int, sequence: int, wait_s: float | None = None) -> int | None:
        """Return the round's tau after the end of the push's round; None after ``wait_s`` (``ROUND_WAIT_S``)."""
        wait_s = self._wait_s if wait_s is None else wait_s
        with self._round_over:
            is_over = self._round_over.wait_for(lambda: self._rounds.is_released(worker, sequence), wait_s)
            return self._rounds.comm_period if is_over else None

    def close_round(self, now: float) -> list[Event]:
        """Apply the present round if every needed worker has pushed; return notes for the user.

        If a round cannot be applied, the run fails, and the workers are released.
        """
        if self._closer is None:
            return []
        with self._shared.lock:
            grants = self._shared.state.grants
            if not self._rounds.is_complete(grants.live, now):
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
        """Return the vectors and notes for a closer."""
        settle_all_unfinished(self._center, self._chunks)
        center = self._center
        return RoundContents(center.vector, center.extras, center.counts, self._chunks.spans, notes)

    def apply_rest(self) -> None:
        """At the end of the run, apply the gathered pushes: no later push completes them.

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
        """Copy the center and the strategy's saved vectors.

        Raises:
            ExchangeUnavailable: A chunk's lock was not to be had; to be called again.
        """
        self.apply_rest()
        with self._lock:
            return CenterCopy.of(self._center, self._chunks, self.applied())
