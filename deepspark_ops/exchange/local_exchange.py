"""The whole exchange in one process, without sockets: same run state, same strategy, same arithmetic.

For the virtual cluster (``deepspark_ops/simulation``), and for tests. Exchanges by socket and shared memory must give
the same bits. A real run always has a server process.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ProtocolError
from deepspark_ops.events import Event
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.server.coordinator import Coordinator, forget_run
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.messages import Request
from deepspark_ops.exchange.state.state_file import write_state
from deepspark_ops.exchange.transport.exchange import exchange, look, pull
from deepspark_ops.exchange.transport.link import (
    ExchangeReport,
    ExchangeStatus,
    StateRequests,
    Welcome,
)
from deepspark_ops.exchange.transport.memory_transfer import MemoryTransfer, ServerCalls
from deepspark_ops.exchange.transport.run_description import RunDescription
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import Vector

_Answer = TypeVar("_Answer")


class LocalExchange:
    """Center and run state in this process. Thread-safe: each worker may be a thread with its own link."""

    def __init__(
        self, settings: ExchangeSettings, initial: Vector, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with a copy of ``initial``, shape (n_params,); ``clock`` gives seconds, as to the coordinator."""
        self.settings = settings
        self.center = Center.in_memory(initial, settings.center_shape())
        self.center.use_locks(settings.running_lock(), settings.exchange_timeout_s)
        forget_run(settings)
        self.coordinator = Coordinator(settings, self.center, clock)

    def link(self) -> LocalLink:
        """Return a link for a worker."""
        return LocalLink(self)

    def poll(self) -> ExchangeStatus:
        """Return the state of the run."""
        return ExchangeStatus.from_json(self.coordinator.status())

    def close(self) -> None:
        """Drop the journal and the center."""
        self.coordinator.close()
        self.settings.journal().unlink(missing_ok=True)
        self.center.close()


class LocalCalls:
    """``ServerCalls`` by function calls."""

    def __init__(self, coordinator: Coordinator, worker: int, session: str) -> None:
        """Send calls of a worker's process."""
        self._coordinator = coordinator
        self._worker = worker
        self._session = session

    def await_round(self, sequence: int, note: RoundNote | None) -> int:
        """See ``ServerCalls``."""
        while (comm_period := self._coordinator.await_round(self._worker, sequence, note)) is None:
            pass
        return comm_period

    def add_statistics(self, sequence: int, sums: Vector) -> None:
        """See ``ServerCalls``."""
        self._coordinator.statistics.add(self._worker, self._session, sequence, sums)


class LocalLink(StateRequests):
    """A ``WorkerLink`` by function calls."""

    def __init__(self, exchange: LocalExchange) -> None:
        """Prepare a link; ``join`` joins."""
        self._exchange = exchange
        self._coordinator = exchange.coordinator
        self._transfer: MemoryTransfer | None = None
        self._session = secrets.token_hex(8)
        self._worker = -1
        self._requests = 0
        self._lock = threading.Lock()

    def join(self, worker: int) -> Welcome:
        """See ``WorkerLink``."""
        welcome = self._coordinator.join(worker, self._session, "local")
        self._worker = worker
        center = self._exchange.center
        plan = TransferPlan(RunDescription.of(self._exchange.settings, center), worker)
        self._transfer = MemoryTransfer("local", plan, center, self._session, self.server_calls())
        return welcome

    def server_calls(self) -> ServerCalls:
        """Return the calls to the server during an exchange; after ``join``."""
        return LocalCalls(self._coordinator, self._worker, self._session)

    def pull(self) -> Vector:
        """See ``WorkerLink``."""
        return pull(self._present_transfer())

    def look(self, *, as_start: bool = False) -> Vector:
        """See ``WorkerLink``."""
        return look(self._present_transfer(), as_start=as_start)

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """See ``WorkerLink``."""
        return exchange(self._present_transfer(), local, measure_distance=measure_distance, note=note)

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._present_transfer().use_moving_rate(moving_rate)

    def report_center(self) -> None:
        """See ``WorkerLink``."""
        self._present_transfer().plan.reports_center = True

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

    def _present_transfer(self) -> MemoryTransfer:
        self._member()
        assert self._transfer is not None, "join makes it"
        return self._transfer

    def _member(self) -> int:
        if self._worker < 0:
            msg = "join(worker) comes before any other call of a link"
            raise ProtocolError(msg)
        self._coordinator.check_session(self._worker, self._session)
        return self._worker
