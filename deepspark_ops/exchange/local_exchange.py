"""The whole exchange in one process, without sockets: same run state, same strategy, same arithmetic.

For the virtual cluster (``deepspark_ops/simulation``), and for tests. Exchanges by socket and shared memory must give
the same bits. A real run always has a server process.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ProtocolError
from deepspark_ops.events import Event
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.host_center import HostCenter
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
from deepspark_ops.exchange.transport.tree_transfer import TreeTransfer
from deepspark_ops.param_vector import Vector

_Answer = TypeVar("_Answer")


class LocalExchange:
    """Center and run state in this process. Thread-safe: each worker may be a thread with its own link."""

    def __init__(
        self,
        settings: ExchangeSettings,
        initial: Vector,
        clock: Callable[[], float] = time.monotonic,
        *,
        workers_per_host: int = 1,
    ) -> None:
        """Start with a copy of ``initial``, shape (n_params,).

        Args:
            settings: The run.
            initial: Copied.
            clock: Seconds, as to the coordinator.
            workers_per_host: Workers that share a center, in a tree of centers.
        """
        self.settings = settings
        self._workers_per_host = workers_per_host
        self._hosts: dict[int, HostCenter] = {}
        self.center = Center.in_memory(initial, settings.center_shape())
        self.center.use_locks(settings.running_lock(), settings.exchange_timeout_s)
        forget_run(settings)
        self.coordinator = Coordinator(settings, self.center, clock)

    def link(self) -> LocalLink:
        """Return a link for a worker."""
        return LocalLink(self)

    def host_of(self, worker: int) -> HostCenter:
        """Return the center of a worker's host; a host without workers begins anew at the root."""
        number = worker // self._workers_per_host
        host = self._hosts.get(number)
        if host is None or not host.present_workers():
            shape = replace(self.settings.center_shape(), n_servers=1)
            host = self._hosts[number] = HostCenter.in_memory(self.center.vector, shape)
        return host

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
        self._host: HostCenter | None = None
        self._session = secrets.token_hex(8)
        self._worker = -1
        self._requests = 0
        self._lock = threading.Lock()

    def join(self, worker: int) -> Welcome:
        """See ``WorkerLink``."""
        welcome = self._coordinator.join(worker, self._session, "local")
        self._worker = worker
        center = self._exchange.center
        run = RunDescription.of(self._exchange.settings, center)
        calls = self.server_calls()
        if run.strategy().root_level is None:
            self._transfer = MemoryTransfer("local", TransferPlan(run, worker), center, self._session, calls)
            return welcome
        host = self._host = self._exchange.host_of(worker)
        host.enter(worker, self._session)
        self._coordinator.note_host(worker, str(id(host)))
        root = self.root_transfer(TransferPlan(run, worker))
        plan = TransferPlan(run, worker)
        self._transfer = TreeTransfer(plan, host, self._session, calls, root, pause=self.pause, now=self.now)
        return welcome

    def root_transfer(self, plan: TransferPlan) -> MemoryTransfer:
        """Return the way of the worker's host to the root, in a tree of centers."""
        return MemoryTransfer("local", plan, self._exchange.center, self._session, self.server_calls())

    @property
    def root_comm_period(self) -> int:
        """Tau of the worker's host; 0 without a tree of centers."""
        return self._transfer.root_period.value if isinstance(self._transfer, TreeTransfer) else 0

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return the seconds of a clock."""
        return time.perf_counter()

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
        self._flush()
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
        self._flush()
        self._coordinator.leave(self._member())

    def close(self) -> None:
        """See ``WorkerLink``."""
        if self._host is not None:
            self._host.exit(self._worker)
            self._host = None
        if self._worker >= 0:
            self._coordinator.lose(self._worker, self._session, "connection closed")

    def _ask(self, request: Request[_Answer]) -> _Answer:
        with self._lock:
            self._requests += 1
            return self._coordinator.answer(request.numbered(self._member(), self._requests))

    def _flush(self) -> None:
        self._present_transfer().flush(self._exchange.settings.exchange_timeout_s)

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
