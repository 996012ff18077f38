"""A worker's vectors by socket: one connection for each key range, both directions at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import TypeVar

from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.transport.connection import ServerConnection
from deepspark_ops.exchange.transport.exchange import ExchangeEnd
from deepspark_ops.exchange.transport.key_range import KeyRange, RangeExchange
from deepspark_ops.exchange.transport.server_calls import SocketCalls
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import Vector

_Result = TypeVar("_Result")


class SocketTransfer:
    """A ``Transfer`` by socket, from and to all servers at the same time, each with its key range."""

    name = "socket"

    def __init__(self, plan: TransferPlan, servers: Sequence[ServerConnection], sequence: int) -> None:
        """Take a connection for each key range, the first server's first, and the last used sequence number."""
        self.plan = plan
        self._sequence = sequence
        self._calls = SocketCalls(servers[0], plan.worker, nullcontext())
        self._ranges = tuple(KeyRange(plan, server, i, len(servers)) for i, server in enumerate(servers))
        self._parts: tuple[RangeExchange, ...] = ()  # of the open exchange
        self._threads = ThreadPoolExecutor(len(servers) - 1, "key range") if len(servers) > 1 else None

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self.plan.moving_rate = moving_rate

    def note_pull(self) -> None:
        """See ``Transfer``."""
        self._each(lambda key_range: key_range.note_pull())

    def copy_center(self, vector: Vector, *, as_start: bool) -> None:
        """See ``Transfer``; starts again after a broken connection."""
        self._each(lambda key_range: key_range.copy_center(self._sequence, vector))

    def begin(self) -> int:
        """See ``Transfer``; the begin travels with the first chunk, without a wait for an answer."""
        return self._sequence + 1

    def exchange_chunks(self, local: Vector, new_local: Vector, *, measure: bool) -> float | None:
        """See ``Transfer``."""
        sequence = self._sequence + 1
        self._parts = parts = tuple(
            RangeExchange(self.plan, key_range, sequence, local, new_local, measure=measure)
            for key_range in self._ranges
        )
        self._each(lambda key_range: key_range.exchange_chunks(parts[key_range.index]))
        return sum(sum(part.squares.values()) for part in parts) ** 0.5 if measure else None

    def await_round(self, note: RoundNote | None) -> int:
        """See ``Transfer``."""
        return self._calls.await_round(self._sequence + 1, note)

    def pull_result(self, new_local: Vector) -> None:
        """See ``Transfer``; ``new_local`` is the vector of ``exchange_chunks``."""
        self._each(lambda key_range: key_range.pull_result(self._parts[key_range.index]))

    def add_statistics(self, sums: Vector) -> None:
        """See ``Transfer``."""
        self._calls.add_statistics(self._sequence + 1, sums)

    def end(self) -> ExchangeEnd:
        """See ``Transfer``."""
        overlaps = self._each(lambda key_range: key_range.end(self._parts[key_range.index]))
        staleness = max(part.context.staleness for part in self._parts)
        self._sequence, self._parts = self._sequence + 1, ()
        return ExchangeEnd(staleness, max(overlaps))

    def flush(self, timeout_s: float) -> None:
        """See ``Transfer``; the server's center has every exchange."""

    def close(self) -> None:
        """Close the connections to all servers but the first; the link owns the first connection."""
        for key_range in self._ranges[1:]:
            key_range.server.close()
        if self._threads is not None:
            self._threads.shutdown()

    def _each(self, action: Callable[[KeyRange], _Result]) -> list[_Result]:
        """Run an action for every server at once; return when all have ended, and raise the first server's error."""
        if self._threads is None:
            return [action(self._ranges[0])]
        further = [self._threads.submit(action, key_range) for key_range in self._ranges[1:]]
        try:
            first = action(self._ranges[0])
        finally:
            wait(further)
        return [first, *(other.result() for other in further)]
