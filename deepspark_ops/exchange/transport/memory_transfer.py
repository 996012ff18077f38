"""A worker's vectors by a center in this process's memory: a mapped file on the server's host, or private memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.pushes import exchange_in_memory
from deepspark_ops.exchange.center.worker_counters import session_number
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.transport.exchange import ExchangeEnd
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import Vector


class ServerCalls(Protocol):
    """The calls to the server of a worker with the center in memory. Takes the needed locks."""

    def await_round(self, sequence: int, note: RoundNote | None) -> int:
        """See ``Transfer.await_round``; ``sequence`` is the number of the open exchange."""

    def add_statistics(self, sequence: int, sums: Vector) -> None:
        """See ``Transfer.add_statistics``."""


class MemoryTransfer:
    """A ``Transfer`` by memory: this process does the worker's and the server's side of each chunk."""

    def __init__(self, name: str, plan: TransferPlan, center: Center, session: str, calls: ServerCalls) -> None:
        """Take a center that this process maps.

        Args:
            name: ``shm`` or ``local``.
            plan: Strategy, chunks and buffers of the exchanges.
            center: The center; ``close`` closes it.
            session: Session of this process as the worker.
            calls: Calls to the server.
        """
        self.name = name
        self.plan = plan
        self._center = center
        self._session = session_number(session)
        self._calls = calls
        self._push = aligned_vector(plan.chunk)
        self._context = ExchangeContext(plan.n_workers)  # of the open exchange

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self.plan.moving_rate = moving_rate

    def note_pull(self) -> None:
        """See ``Transfer``."""
        self._center.pulled(self.plan.worker)

    def copy_center(self, vector: Vector, *, as_start: bool) -> None:
        """See ``Transfer``."""
        np.copyto(vector, self._center.vector)

    def begin(self) -> int:
        """See ``Transfer``."""
        plan = self.plan
        self._context = self._center.begin(plan.worker, plan.moving_rate, self._session)
        return self._context.ended_before + 1

    def exchange_chunks(self, local: Vector, new_local: Vector, *, measure: bool) -> float | None:
        """See ``Transfer``."""
        plan = self.plan
        return exchange_in_memory(
            self._center,
            plan.chunks,
            plan.worker,
            plan.order,
            self._context,
            local,
            new_local,
            plan.start_or(local),
            self._push,
            center_copy=plan.center_copy,
            measure_distance=measure,
        )

    def await_round(self, note: RoundNote | None) -> int:
        """See ``Transfer``."""
        return self._calls.await_round(self._context.ended_before + 1, note)

    def pull_result(self, new_local: Vector) -> None:
        """See ``Transfer``."""
        np.copyto(new_local, self._center.result(self.plan.strategy))

    def add_statistics(self, sums: Vector) -> None:
        """See ``Transfer``."""
        self._calls.add_statistics(self._context.ended_before + 1, sums)

    def end(self) -> ExchangeEnd:
        """See ``Transfer``."""
        plan, context = self.plan, self._context
        return ExchangeEnd(context.staleness, self._center.end(plan.worker, context, plan.bytes_up + plan.bytes_down))

    def flush(self, timeout_s: float) -> None:
        """See ``Transfer``; the server's center has every exchange."""

    def close(self) -> None:
        """Unmap."""
        self._center.close()
