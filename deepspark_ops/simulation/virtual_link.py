"""A worker's link in a virtual cluster: the exchange in this process, in the virtual time of an exchange by socket."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from deepspark_ops.events import Event
from deepspark_ops.exchange.local_exchange import LocalExchange, LocalLink
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.messages import Acknowledge, Request, RequestGrant
from deepspark_ops.exchange.transport.exchange import ExchangeEnd
from deepspark_ops.exchange.transport.link import ExchangeReport, RoundEnd
from deepspark_ops.exchange.transport.memory_transfer import MemoryTransfer, ServerCalls
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import Vector
from deepspark_ops.planning.simulator import ExchangeCost
from deepspark_ops.simulation.cluster import CenterQueue
from deepspark_ops.simulation.virtual_time import VirtualTime, WorkerTime

_Answer = TypeVar("_Answer")


@dataclass
class VirtualCenter:
    """The shared parts of a virtual cluster's links; only the running thread uses them.

    Attributes:
        exchange: Center and run state.
        cost: Of one exchange with the server's center.
        time: Of all workers.
        host_cost: Of one exchange of a worker with its host's center, in a tree of centers.
        queue: The center's time.
        control_queue: The server's time for the control calls of workers with a host's center: no vector delays a call.
        finished_s: When the last minibatch was acknowledged.
        exchange_s: Seconds of all workers' exchanges, waiting included; with ``overlap`` workers compute meanwhile.
        tests: Events of test nets; their time is the virtual one.
    """

    exchange: LocalExchange
    cost: ExchangeCost
    time: VirtualTime
    host_cost: ExchangeCost | None = None
    queue: CenterQueue = field(default_factory=CenterQueue)
    control_queue: CenterQueue = field(default_factory=CenterQueue)
    finished_s: float = 0.0
    exchange_s: float = 0.0
    tests: list[Event] = field(default_factory=list)
    _waiting: dict[int, int] = field(default_factory=dict)
    _pulled: dict[int, float] = field(default_factory=dict)
    _closed_s: float = 0.0

    def wait_for_round(self, time: WorkerTime, sequence: int, note: RoundNote | None) -> tuple[int, float]:
        """After a worker's push, wait for the pushes of all, and then for the worker's pull.

        Returns:
            The tau that all take, and the seconds of waiting for the others.
        """
        coordinator, worker, pushed = self.exchange.coordinator, time.worker, time.now()
        self._waiting[worker] = sequence
        coordinator.await_round(worker, sequence, note, wait_s=0.0)
        self.release()
        if worker in self._waiting:
            time.until_woken()
        closed, pulled = self._closed_s, self._pulled.pop(worker)
        comm_period = coordinator.updates.await_round(worker, sequence, 0.0)
        assert comm_period is not None, "whoever is released has a round that is over"
        time.until(pulled)
        return comm_period, closed - pushed

    def release(self) -> None:
        """Wake the workers whose round has just ended; the workers pull in turn."""
        if not self._waiting:
            return
        first = next(iter(self._waiting))
        if self.exchange.coordinator.updates.await_round(first, self._waiting[first], 0.0) is None:
            return
        self._closed_s = now = self.time.now()
        released, self._waiting = self._waiting, {}
        for worker in released:
            self._pulled[worker] = self.queue.serve(now, self.cost.pull_s) + self.cost.pull_s
            self.time.wake_if_asleep(worker)

    def forget(self, worker: int) -> None:
        """Forget a lost worker."""
        self._waiting.pop(worker, None)
        self._pulled.pop(worker, None)


class _VirtualCalls:
    """``ServerCalls`` in virtual time."""

    def __init__(self, link: VirtualLink, calls: ServerCalls) -> None:
        self._link = link
        self._calls = calls

    def await_round(self, sequence: int, note: RoundNote | None) -> int:
        """See ``ServerCalls``."""
        return self._link.wait_for_round(sequence, note)

    def add_statistics(self, sequence: int, sums: Vector) -> None:
        """See ``ServerCalls``."""
        self._calls.add_statistics(sequence, sums)


class _VirtualRoot(MemoryTransfer):
    """The way of a host to the root in virtual time: the root serves hosts in turn."""

    def __init__(self, center: VirtualCenter, time: WorkerTime, *args: Any) -> None:
        super().__init__(*args)
        self._shared, self._time = center, time
        self._end_s = 0.0

    def begin(self) -> int:
        """See ``Transfer``."""
        cost = self._shared.cost
        began = self._shared.queue.serve(self._time.now(), cost.service_s)
        self._end_s = began + cost.alone_s
        self._time.until(began)
        return super().begin()

    def end(self) -> ExchangeEnd:
        """See ``Transfer``."""
        ended = super().end()
        self._time.until(self._end_s)
        return ended


class VirtualLink(LocalLink):
    """A ``WorkerLink`` by function calls, with exchanges in virtual time."""

    def __init__(self, center: VirtualCenter, time: WorkerTime) -> None:
        """Prepare a link; ``join`` joins."""
        super().__init__(center.exchange)
        self._center = center
        self._time = time
        self._waited_s = 0.0
        self._waits_in_rounds = center.exchange.settings.running_strategy().pulls == "after_round"

    def server_calls(self) -> ServerCalls:
        """See ``LocalLink``."""
        return _VirtualCalls(self, super().server_calls())

    def root_transfer(self, plan: TransferPlan) -> MemoryTransfer:
        """See ``LocalLink``."""
        shared = self._center
        calls = self.server_calls()
        return _VirtualRoot(shared, self._time, "local", plan, shared.exchange.center, self._session, calls)

    def pause(self, seconds: float) -> None:
        """See ``LocalLink``."""
        self._time.sleep(seconds)

    def now(self) -> float:
        """See ``LocalLink``."""
        return self._time.now()

    def wait_for_round(self, sequence: int, note: RoundNote | None) -> int:
        """Wait for the others during an exchange; return the tau of all."""
        comm_period, self._waited_s = self._center.wait_for_round(self._time, sequence, note)
        return comm_period

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """See ``WorkerLink``; the center takes the push in the worker's turn."""
        cost, time, queue = self._center.cost, self._time, self._center.queue
        host_cost = self._center.host_cost
        arrival = time.now()
        if self._waits_in_rounds:
            time.until(queue.serve(arrival, cost.push_s) + cost.push_s)
            new_local, report = super().exchange(local, measure_distance=measure_distance, note=note)
            end_s = max(time.now(), arrival + cost.least_s) + cost.latency_s + cost.own_s
            report = report._replace(round_end=RoundEnd(self._waited_s, report.round_end.comm_period))
        elif host_cost is not None:
            time.until(self._center.control_queue.serve(arrival, host_cost.service_s))
            new_local, report = super().exchange(local, measure_distance=measure_distance, note=note)
            end_s = time.now() + host_cost.alone_s  # an exchange of host and root has taken its own time
        else:
            began = queue.serve(arrival, cost.service_s)
            time.until(began)
            new_local, report = super().exchange(local, measure_distance=measure_distance, note=note)
            end_s = began + cost.alone_s
        time.until(end_s)
        self._center.exchange_s += end_s - arrival
        return new_local, report._replace(seconds=end_s - arrival)

    def send_event(self, event: Event) -> None:
        """See ``WorkerLink``; events have virtual time."""
        event = replace(event, time=self._time.now())
        super().send_event(event)
        if event.kind == "evaluation":
            self._center.tests.append(event)

    def leave(self) -> None:
        """See ``WorkerLink``."""
        super().leave()
        self._center.release()

    def close(self) -> None:
        """See ``WorkerLink``."""
        self._center.forget(self._time.worker)
        super().close()
        self._center.release()

    def _ask(self, request: Request[_Answer]) -> _Answer:
        answer = super()._ask(request)
        if request.done if isinstance(request, RequestGrant) else isinstance(request, Acknowledge) and answer:
            self._center.finished_s = self._time.now()
        self._center.release()
        return answer
