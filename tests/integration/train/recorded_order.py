"""Several workers in a recorded order: steps, pieces of data and pushes of each worker.

In a free run the order depends on the workers' speeds. ``Recording`` keeps the order. In a replay each worker waits for
its recorded turn, so a run can be repeated, also from a snapshot on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from deepspark_ops.exchange.local_exchange import LocalExchange, LocalLink
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.transport.link import ExchangeReport, Welcome
from deepspark_ops.exchange.transport.memory_transfer import ServerCalls
from deepspark_ops.param_vector import Vector
from tests.integration.train.in_process import Death

WAIT_S = 120.0
Piece = tuple[str, int, int, int]
"""Dataset, epoch, shard, first sample."""


@dataclass
class Recording:
    """Who did what; thread-safe under ``turn``.

    Attributes:
        steps: Clock of a step -> worker.
        pieces: Piece of data -> worker.
        pushes: Clocks at which exchanges' steps end, in the order of the pushes.
    """

    steps: dict[int, int] = field(default_factory=dict)
    pieces: dict[Piece, int] = field(default_factory=dict)
    pushes: list[int] = field(default_factory=list)


class Turns:
    """The turns of a run: recorded in ``recorded``, or played from ``order`` if present."""

    def __init__(self, n_workers: int, order: Recording | None = None, *, dies_at: int | None = None) -> None:
        """Play ``order``; every worker dies in place of its first acknowledgement of steps behind ``dies_at``."""
        self.recorded = Recording()
        self.order = order
        self.dies_at = dies_at
        self.turn = threading.Condition()
        self.all_joined = threading.Barrier(n_workers)
        self._is_dead = False

    def link(self, exchange: LocalExchange, worker: int) -> OrderedLink:
        """Return a worker's link."""
        return OrderedLink(exchange, self)

    def next_push(self, first: int) -> int | None:
        """Return the clock of the push that comes next in a run from clock ``first`` on."""
        assert self.order is not None
        pushed = set(self.recorded.pushes)
        return next((clock for clock in self.order.pushes if clock > first and clock not in pushed), None)

    def die(self) -> None:
        """End every worker."""
        with self.turn:
            self._is_dead = True
            self.turn.notify_all()
        raise Death

    def wait(self) -> None:
        """Let others go on; the caller holds ``turn``."""
        if self._is_dead:
            raise Death
        assert self.turn.wait(WAIT_S), "nobody has the turn"

    @contextmanager
    def held_turn(self) -> Iterator[None]:
        """Hold the turn, and tell the others when it is over."""
        with self.turn:
            yield
            self.turn.notify_all()


class _Calls:
    """``ServerCalls`` that give the turn away while a round is waited for."""

    def __init__(self, link: OrderedLink, calls: ServerCalls) -> None:
        self._link = link
        self._calls = calls

    def await_round(self, sequence: int, note: RoundNote | None) -> int:
        comm_period = self._link.note_push(sequence, note)
        self._link.pushed()
        return self._calls.await_round(sequence, note) if comm_period is None else comm_period

    def add_statistics(self, sequence: int, sums: Vector) -> None:
        self._calls.add_statistics(sequence, sums)


class OrderedLink(LocalLink):
    """Takes steps, data and pushes in turns."""

    def __init__(self, exchange: LocalExchange, turns: Turns) -> None:
        super().__init__(exchange)
        self._turns = turns
        self._first = exchange.settings.schedule.first
        self._granted: list[Grant] = []
        self._pushing = 0

    def server_calls(self) -> ServerCalls:
        return _Calls(self, super().server_calls())

    def join(self, worker: int) -> Welcome:
        welcome = super().join(worker)
        self._turns.all_joined.wait(WAIT_S)  # a round waits for those who have joined
        return welcome

    def request_grant(self, want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
        turns, order = self._turns, self._turns.order
        for grant in done:  # before the turn: another worker may wait for a snapshot of these steps
            self.acknowledge(grant)
        grants = self._exchange.coordinator._shared.state.grants
        with turns.held_turn():
            while order is not None and order.steps.get(grants.clock, self._worker) != self._worker:
                turns.wait()
            answer = super().request_grant(want, held=held)
            if isinstance(answer, Grant) and answer.count:
                turns.recorded.steps |= dict.fromkeys(range(answer.start, answer.stop), self._worker)
                self._granted.append(answer)
            return answer

    def lease(self, dataset: str, *, read: Sequence[Lease] = ()) -> Lease | None:
        turns, order = self._turns, self._turns.order
        leases = self._exchange.coordinator._shared.state.leases[dataset]
        with turns.held_turn():
            while order is not None and order.pieces.get(_next_piece(dataset, leases), self._worker) != self._worker:
                if turns.next_push(self._first) is None:  # data read ahead of an ended run: nobody takes the data
                    break
                turns.wait()
            lease = super().lease(dataset, read=read)
            if lease is not None:
                turns.recorded.pieces[dataset, lease.epoch, lease.shard, lease.start] = self._worker
            return lease

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        turns = self._turns
        self._pushing = self._granted[-1].stop
        turns.turn.acquire()
        while turns.order is not None and turns.next_push(self._first) != self._pushing:
            try:
                turns.wait()
            except BaseException:
                turns.turn.release()
                raise
        try:
            return super().exchange(local, measure_distance=measure_distance, note=note)
        finally:
            self.pushed()

    def note_push(self, sequence: int, note: RoundNote | None) -> int | None:
        """Tell the server of the push in this worker's turn: notes are summed as they come."""
        return self._coordinator.await_round(self._worker, sequence, note, 0.0)

    def pushed(self) -> None:
        """The push is with the server: the next one's turn. May be called again."""
        if self._pushing:
            self._turns.recorded.pushes.append(self._pushing)
            self._pushing = 0
            self._turns.turn.notify_all()
            self._turns.turn.release()

    def acknowledge(self, grant: Grant) -> bool:
        self._die_behind(grant)
        with self._turns.held_turn():
            return super().acknowledge(grant)

    def _die_behind(self, *grants: Grant) -> None:
        dies_at = self._turns.dies_at
        if dies_at is not None and any(grant.stop > dies_at for grant in grants):
            self._turns.die()


def _next_piece(dataset: str, leases: object) -> Piece:
    """Return the piece that the server gives next."""
    at = leases._position  # type: ignore[attr-defined]
    if at.returned:
        epoch, position, _ = at.returned[0]
    else:
        is_over = at.next == len(leases._pieces)  # type: ignore[attr-defined]
        epoch, position = (at.epoch + 1, 0) if is_over else (at.epoch, at.next)
    shard, start, _ = leases._pieces[leases._order(epoch).pieces[position]]  # type: ignore[attr-defined]
    return dataset, epoch, shard, start
