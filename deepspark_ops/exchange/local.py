"""The whole exchange in one process, without sockets: same run state, same strategy, same arithmetic.

For runs with one worker in the driver's process, for tests, and as the measure that the socket and shared memory
must agree with bit for bit.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ProtocolError
from deepspark_ops.events import Event
from deepspark_ops.exchange.center.buffers import VectorPool, aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.pushes import exchange_in_memory
from deepspark_ops.exchange.center.worker_counters import session_number
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.server.coordinator import Coordinator, forget_run
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.journal import JOURNAL_FILE
from deepspark_ops.exchange.state.messages import Request
from deepspark_ops.exchange.state.state_file import write_state
from deepspark_ops.exchange.transport.link import (
    NO_ROUND,
    ExchangeReport,
    ExchangeStatus,
    RoundEnd,
    StateRequests,
    Welcome,
)
from deepspark_ops.param_vector import Vector

_Answer = TypeVar("_Answer")


class LocalExchange:
    """Center and run state in this process. Thread-safe: each worker may be a thread with its own link."""

    def __init__(self, settings: ExchangeSettings, initial: Vector) -> None:
        """Start with a copy of ``initial``, shape (n_params,)."""
        self.settings = settings
        self.center = Center.in_memory(initial, settings.center_shape())
        self.center.use_locks(settings.running_lock(), settings.exchange_timeout_s)
        forget_run(settings.work)
        self.coordinator = Coordinator(settings, self.center)

    def link(self) -> LocalLink:
        """Return a link for one worker."""
        return LocalLink(self)

    def poll(self) -> ExchangeStatus:
        """Return the state of the run."""
        return ExchangeStatus.from_json(self.coordinator.status())

    def close(self) -> None:
        """Drop the journal and the center."""
        self.coordinator.close()
        (self.settings.work / JOURNAL_FILE).unlink(missing_ok=True)
        self.center.close()


class LocalLink(StateRequests):
    """A ``WorkerLink`` by function calls."""

    def __init__(self, exchange: LocalExchange) -> None:
        """Join comes later."""
        settings = exchange.settings
        self._exchange = exchange
        self._coordinator = exchange.coordinator
        self._strategy = settings.running_strategy()
        self._moving_rate = settings.alpha()
        self._chunks = Chunks(settings.n_params, settings.chunk, self._strategy, settings.statistics)
        self._push = aligned_vector(min(settings.chunk, settings.n_params))
        self._vectors = VectorPool(settings.n_params)
        self._start: Vector | None = None
        self._session = secrets.token_hex(8)
        self._worker = -1
        self._requests = 0
        self._lock = threading.Lock()

    def join(self, worker: int) -> Welcome:
        """See ``WorkerLink``."""
        welcome = self._coordinator.join(worker, self._session, "local")
        self._worker = worker
        return welcome

    def pull(self) -> Vector:
        """See ``WorkerLink``."""
        self._exchange.center.pulled(self._member())
        return self.look(as_start=True)

    def look(self, *, as_start: bool = False) -> Vector:
        """See ``WorkerLink``."""
        self._member()
        vector = self._vectors.take()
        np.copyto(vector, self._exchange.center.vector)
        if as_start and self._strategy.keeps_start:
            self._start = vector
        return vector

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """See ``WorkerLink``."""
        started = time.perf_counter()
        worker, settings, center = self._member(), self._exchange.settings, self._exchange.center
        if self._strategy.keeps_start and self._start is None:
            self.pull()
        context = center.begin(worker, self._moving_rate, session_number(self._session))
        sequence = context.own + 1
        new_local = self._vectors.take()
        order = self._chunks.order(worker, settings.n_workers)
        distance = exchange_in_memory(
            center,
            self._chunks,
            worker,
            order,
            context,
            local,
            new_local,
            local if self._start is None else self._start,
            self._push,
            measure_distance=measure_distance,
        )
        round_end = NO_ROUND
        if self._strategy.pulls == "after_round":
            pushed = time.perf_counter()
            while (comm_period := self._coordinator.await_round(worker, sequence, note)) is None:
                pass
            round_end = RoundEnd(time.perf_counter() - pushed, comm_period)
            np.copyto(new_local, center.result(self._strategy))
        if self._chunks.held is not None:
            positions = settings.statistics.positions
            new_local[positions] = self._coordinator.statistics.exchange(
                worker, self._session, sequence, local[positions]
            )
        if self._strategy.keeps_start:
            self._start = new_local
        n_bytes = local.nbytes
        down = 0 if self._strategy.pulls == "never" else n_bytes
        overlaps = center.end(worker, context, n_bytes + down)
        seconds = time.perf_counter() - started
        return new_local, ExchangeReport(
            sequence, seconds, n_bytes, down, context.staleness, overlaps, distance, "local", round_end
        )

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._moving_rate = moving_rate

    def send_event(self, event: Event) -> None:
        """See ``WorkerLink``."""
        self._coordinator.event(self._member(), event.to_json())

    def send_state(
        self, iteration: int, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """See ``WorkerLink``."""
        self.heartbeat()
        snapshots = self._coordinator.snapshots
        path = snapshots.state_path(self._worker, iteration)
        if path is not None:
            write_state(path, arrays)
        snapshots.state_received(self._worker, iteration, meta)

    def heartbeat(self) -> None:
        """See ``WorkerLink``."""
        self._coordinator.heartbeat(self._member())

    def leave(self) -> None:
        """See ``WorkerLink``."""
        self._coordinator.leave(self._member())

    def close(self) -> None:
        """See ``WorkerLink``."""
        if self._worker >= 0:
            self._coordinator.lose(self._worker, self._session, "connection closed")

    def _ask(self, request: Request[_Answer]) -> _Answer:
        with self._lock:
            self._requests += 1
            return self._coordinator.answer(request.numbered(self._member(), self._requests))

    def _member(self) -> int:
        if self._worker < 0:
            msg = "join(worker) comes before any other call of a link"
            raise ProtocolError(msg)
        self._coordinator.check_session(self._worker, self._session)
        return self._worker
