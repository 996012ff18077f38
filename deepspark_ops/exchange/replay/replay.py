"""An exchange in one process that repeats a recorded run: same grants, same leases, every chunk in the same order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.events import Event, append_event
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks, meet_in_memory
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Finished, Grant, GrantAnswer
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.transport.link import ExchangeReport, Welcome
from deepspark_ops.exchange.transport.run_record import Meeting, RecordedWorker, Turns
from deepspark_ops.param_vector import Vector

TURN_LIMIT_S = 600.0
"""Longest wait for another worker's turn: it may have to compile its net first."""


class ReplayedExchange:
    """Center and turns. Thread-safe: each worker is a thread with its own link."""

    def __init__(self, settings: ExchangeSettings, initial: Vector, workers: Sequence[RecordedWorker]) -> None:
        """Start with a copy of ``initial``, shape (n_params,)."""
        self.settings = settings
        self.center = Center.in_memory(initial, settings.center_shape())
        self._workers = workers
        self._done = [0] * len(self.center.counts)
        self._moved = threading.Condition()
        self._failure = ""

    def link(self, worker: int) -> ReplayLink:
        """Return the link of one worker."""
        return ReplayLink(self, self._workers[worker])

    def fail(self, reason: str) -> None:
        """A worker cannot go on: nobody waits for its turns any longer."""
        with self._moved:
            self._failure = self._failure or reason
            self._moved.notify_all()

    @contextmanager
    def turn(self, position: int, turn: int) -> Iterator[None]:
        """Hold chunk ``position`` when it is the turn of this action.

        Raises:
            ExchangeUnavailable: It never was: another worker failed, or the record has a gap.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._done[position] >= turn - 1 or bool(self._failure), TURN_LIMIT_S)
            if self._done[position] != turn - 1:
                why = self._failure or "the record is not whole"
                msg = f"chunk {position}: waited for turn {turn} in vain, {self._done[position]} are done; {why}"
                raise ExchangeUnavailable(msg)
        yield
        with self._moved:
            self._done[position] = turn
            self._moved.notify_all()


class _Turns:
    """``ChunkLocks`` of one pull or exchange."""

    def __init__(self, exchange: ReplayedExchange, turns: Turns) -> None:
        self._exchange = exchange
        self._turns = turns

    def chunk(self, position: int) -> AbstractContextManager[None]:
        """Hold a chunk at its turn."""
        return self._exchange.turn(position, self._turns[position])

    def whole(self) -> AbstractContextManager[None]:
        """Hold nothing: turns say it all."""
        return nullcontext()


class ReplayLink:
    """A ``WorkerLink`` whose every answer was given before; tests and snapshots, which move nothing, are left out."""

    def __init__(self, exchange: ReplayedExchange, recorded: RecordedWorker) -> None:
        """Join comes later."""
        settings = exchange.settings
        self._exchange = exchange
        self._strategy = settings.running_strategy()
        self._moving_rate = settings.alpha()
        self._chunks = Chunks(settings.n_params, settings.chunk, self._strategy, settings.statistics)
        self._center = exchange.center.twin()
        self._push = aligned_vector(min(settings.chunk, settings.n_params))
        self._grants = iter(recorded.grants)
        self._meetings = iter(recorded.meetings)
        self._leases = {name: iter(leases) for name, leases in recorded.leases.items()}
        self._start: Vector | None = None
        self._n_exchanges = 0
        self._worker = -1

    def join(self, worker: int) -> Welcome:
        """See ``WorkerLink``."""
        self._worker = worker
        settings, name = self._exchange.settings, self._strategy.name
        return Welcome(0, settings.n_params, settings.n_workers, name, self._moving_rate, settings.chunk, "local")

    def request_grant(self, want: int, *, held: Grant | None = None) -> GrantAnswer:
        """See ``WorkerLink``."""
        grant = next(self._grants, None)
        return Finished() if grant is None else replace(grant, tests=False, state_for=0)

    def acknowledge(self, grant: Grant) -> bool:
        """See ``WorkerLink``."""
        return True

    def pull(self) -> Vector:
        """See ``WorkerLink``."""
        meeting, vector = self._next_meeting(), aligned_vector(len(self._center.vector))
        turns = _Turns(self._exchange, meeting.turns)
        for position in self._order():
            with turns.chunk(position):
                span = self._chunks.spans[position]
                vector[span] = self._center.vector[span]
        self._start = vector
        return vector

    def look(self, *, as_start: bool = False) -> Vector:
        """See ``WorkerLink``."""
        return self._center.snapshot()

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._moving_rate = moving_rate

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """See ``WorkerLink``."""
        meeting = self._next_meeting()
        self._center.locks = _Turns(self._exchange, meeting.turns)
        own = self._n_exchanges
        self._n_exchanges += 1
        n_workers = self._exchange.settings.n_workers
        context = ExchangeContext(n_workers, self._moving_rate, meeting.staleness, own, meeting.total)
        new_local = aligned_vector(len(local))
        distance = meet_in_memory(
            self._center,
            self._chunks,
            self._worker,
            self._order(),
            context,
            local,
            new_local,
            local if self._start is None else self._start,
            self._push,
            measure_distance=measure_distance,
        )
        self._start = new_local
        return new_local, ExchangeReport(own + 1, 0.0, 0, 0, meeting.staleness, 0, distance, "local")

    def lease(self, dataset: str = "train") -> Lease | None:
        """See ``WorkerLink``."""
        return next(self._leases.get(dataset, iter(())), None)

    def return_lease(self, lease: Lease, consumed: int | None = None) -> None:
        """See ``WorkerLink``."""

    def send_event(self, event: Event) -> None:
        """See ``WorkerLink``."""
        append_event(self._exchange.settings.events, event)

    def send_state(
        self, iteration: int, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """See ``WorkerLink``; nobody asks for it."""

    def heartbeat(self) -> None:
        """See ``WorkerLink``."""

    def leave(self) -> None:
        """See ``WorkerLink``."""

    def close(self) -> None:
        """See ``WorkerLink``."""

    def _order(self) -> Sequence[int]:
        return self._chunks.order(self._worker, self._exchange.settings.n_workers)

    def _next_meeting(self) -> Meeting:
        meeting = next(self._meetings, None)
        if meeting is None:
            msg = f"worker {self._worker}: the record has no more exchanges; was the run interrupted?"
            raise ExchangeUnavailable(msg)
        return meeting
