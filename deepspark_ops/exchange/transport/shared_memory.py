"""A worker's vectors by shared memory, on the server's host."""

from __future__ import annotations

import threading
import time

import numpy as np

from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.pushes import exchange_in_memory
from deepspark_ops.exchange.center.worker_counters import session_number
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.transport.connection import ServerConnection
from deepspark_ops.exchange.transport.link import NO_ROUND, ExchangeReport
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan, await_round, meet_statistics
from deepspark_ops.param_vector import Vector


class SharedMemoryTransfer:
    """Vectors by a mapped center: this process does worker's and server's side of each chunk itself."""

    def __init__(self, plan: TransferPlan, server: ServerConnection, center: Center, session: str) -> None:
        """Take a center that this process has mapped, and the session by which it is the worker."""
        self._session = session_number(session)
        self._plan = plan
        self._server = server
        self._center = center
        self._push = aligned_vector(plan.chunk)

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._plan.moving_rate = moving_rate

    def pull(self) -> Vector:
        """Copy the center and go on from it."""
        self._center.pulled(self._plan.worker)
        return self.look(as_start=True)

    def look(self, *, as_start: bool) -> Vector:
        """Copy the center."""
        vector = self._plan.vectors.take()
        np.copyto(vector, self._center.vector)
        if as_start:
            self._plan.began_with(vector)
        return vector

    def exchange(
        self, local: Vector, measure: bool, note: RoundNote | None, lock: threading.Lock
    ) -> tuple[Vector, ExchangeReport]:
        """Meet the center chunk by chunk; ``lock`` guards the socket, which only statistics need."""
        started = time.perf_counter()
        plan, center = self._plan, self._center
        plan.check(local)
        if plan.lacks_start:
            self.pull()
        context = center.begin(plan.worker, plan.moving_rate, self._session)
        sequence = context.own + 1
        new_local = plan.vectors.take()
        distance = exchange_in_memory(
            center,
            plan.chunks,
            plan.worker,
            plan.order,
            context,
            local,
            new_local,
            local if plan.start is None else plan.start,
            self._push,
            measure_distance=measure,
        )
        round_end = NO_ROUND
        if plan.strategy.pulls == "after_round":
            with lock:
                round_end = await_round(self._server, plan, sequence, note)
            np.copyto(new_local, center.result(plan.strategy))
        if plan.chunks.held is not None:
            with lock:
                meet_statistics(self._server, plan, local, new_local, sequence)
        plan.began_with(new_local)
        bytes_up, bytes_down = plan.bytes_up, plan.bytes_down
        overlaps = center.end(plan.worker, context, bytes_up + bytes_down)
        seconds = time.perf_counter() - started
        return new_local, ExchangeReport(
            sequence, seconds, bytes_up, bytes_down, context.staleness, overlaps, distance, "shm", round_end
        )

    def close(self) -> None:
        """Unmap."""
        self._center.close()
