"""A worker's pull and exchange, written once for all transports."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.transport.link import NO_ROUND, ExchangeReport, RoundEnd
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import Vector


class ExchangeEnd(NamedTuple):
    """The end of an exchange.

    Attributes:
        staleness: See ``ExchangeReport``.
        overlaps: See ``ExchangeReport``.
        remark: See ``ExchangeReport``.
    """

    staleness: int
    overlaps: int
    remark: str | None = None


class Transfer(Protocol):
    """The steps of an exchange. Shared memory, sockets and the exchange in one process implement the steps.

    Used by one thread. Every step may raise ``ExchangeUnavailable`` or ``ProtocolError``, see ``WorkerLink``.

    Attributes:
        name: ``shm``, ``socket``, ``tree`` or ``local``.
        plan: Strategy, chunks and buffers of the exchanges.
    """

    name: str
    plan: TransferPlan

    def note_pull(self) -> None:
        """Count staleness from now on."""

    def copy_center(self, vector: Vector, *, as_start: bool) -> None:
        """Copy a center into ``vector``, (n_params,).

        Args:
            vector: Receives the center.
            as_start: The worker goes on from the copy: the center of the worker's exchanges. Else the server's center.
                The centers differ in a tree of centers.
        """

    def begin(self) -> int:
        """Open an exchange; return the exchange's number among the worker's, from 1."""

    def exchange_chunks(self, local: Vector, new_local: Vector, *, measure: bool) -> float | None:
        """Push every chunk, and pull unless the strategy waits for a round.

        Args:
            local: The worker's parameters, (n_params,), read only.
            new_local: Receives the new ones, (n_params,).
            measure: Return the L2 norm of local - center, else None; only where the strategy pulls first.
        """

    def await_round(self, note: RoundNote | None) -> int:
        """Wait until all workers have pushed; return the new tau of all workers, 0 for each worker's own."""

    def pull_result(self, new_local: Vector) -> None:
        """Copy the result of the round into ``new_local``."""

    def add_statistics(self, sums: Vector) -> None:
        """Have the server add BatchNorm's statistics since the last exchange, (n_values,)."""

    def end(self) -> ExchangeEnd:
        """Close the exchange."""

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""

    def flush(self, timeout_s: float) -> None:
        """Bring this worker's exchanges to the server's center, within ``timeout_s``; see ``TreeTransfer``."""

    def close(self) -> None:
        """Release everything that only this transfer uses."""


def pull(transfer: Transfer) -> Vector:
    """Copy the center as the worker's new start; see ``WorkerLink.pull``."""
    transfer.note_pull()
    return look(transfer, as_start=True)


def look(transfer: Transfer, *, as_start: bool) -> Vector:
    """Copy the center; see ``WorkerLink.look``."""
    vector = transfer.plan.vectors.take()
    transfer.copy_center(vector, as_start=as_start)
    if as_start:
        transfer.plan.begin_statistics(vector)
        transfer.plan.began_with(vector)
    return vector


def exchange(
    transfer: Transfer, local: Vector, *, measure_distance: bool, note: RoundNote | None
) -> tuple[Vector, ExchangeReport]:
    """Exchange parameters, or gradients, with the center; see ``WorkerLink.exchange``."""
    started = time.perf_counter()
    plan = transfer.plan
    pulls = plan.strategy.pulls
    plan.check(local)
    if plan.lacks_start:
        pull(transfer)
    new_local = plan.vectors.take()
    plan.center_copy = plan.vectors.take() if plan.reports_center and pulls == "before" else None
    sequence = transfer.begin()
    distance = transfer.exchange_chunks(local, new_local, measure=measure_distance and pulls == "before")
    round_end = NO_ROUND
    if pulls == "after_round":
        pushed = time.perf_counter()
        comm_period = transfer.await_round(note)
        round_end = RoundEnd(time.perf_counter() - pushed, comm_period)
        transfer.pull_result(new_local)
    if plan.chunks.statistics is not None:
        transfer.add_statistics(local[plan.statistics.positions])
        plan.begin_statistics(new_local)
    end = transfer.end()
    plan.began_with(new_local)
    seconds = time.perf_counter() - started
    return new_local, ExchangeReport(
        sequence,
        seconds,
        plan.bytes_up,
        plan.bytes_down,
        end.staleness,
        end.overlaps,
        distance,
        transfer.name,
        round_end,
        plan.center_copy,
        end.remark,
    )
