"""A vector in chunks, and how a worker and a center meet chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.locks import CenterLocks
from deepspark_ops.exchange.strategies.base import SINGLE_WORKER, ExchangeContext, Strategy
from deepspark_ops.param_vector import StatisticBlobs, Vector, chunk_ranges

MIN_WATCH_FLOATS = 2_048


class Chunks:
    """One strategy's chunks over one vector: ranges in a worker's order and the statistics inside each.

    Attributes:
        watch_floats: Length of the watched part of a chunk, from its start: adding it up must cost next to nothing.
    """

    def __init__(self, n_params: int, chunk: int, strategy: Strategy, statistics: StatisticBlobs) -> None:
        """Cut the vector."""
        self.ranges = chunk_ranges(n_params, chunk)
        self.spans = tuple(slice(*span) for span in self.ranges)
        self.strategy = strategy
        # Statistics meet in their own way; in a push they are zero, which changes nothing. Alone they are copied.
        held = statistics if strategy.name != SINGLE_WORKER else StatisticBlobs()
        self.held = tuple(held.within(*span) for span in self.ranges) if held.layers else None
        self.watch_floats = max(MIN_WATCH_FLOATS, n_params // 200)
        self._views: tuple[Vector, tuple[Vector, ...]] | None = None

    def order(self, worker: int, n_workers: int, server: int = 0, n_servers: int = 1) -> Sequence[int]:
        """Return the positions of a server's chunks in the order in which a worker takes them.

        Each worker has a start of its own, so that workers rarely write the same chunk.
        """
        begin, end = (k * len(self.ranges) // n_servers for k in (server, server + 1))
        first = begin + worker * (end - begin) // n_workers
        return (*range(first, end), *range(begin, first))

    def views(self, vector: Vector) -> tuple[Vector, ...]:
        """Return the chunks of a vector as views; those of the last vector are kept, since a center stays one."""
        if self._views is None or self._views[0] is not vector:
            self._views = (vector, tuple([vector[span] for span in self.spans]))
        return self._views[1]

    def hold_statistics(self, position: int, push: Vector) -> None:
        """Take the statistics of one chunk out of a push."""
        if self.held is not None and len(self.held[position]):
            push[self.held[position]] = 0.0


def apply_push(center: Center, chunks: Chunks, position: int, push: Vector, context: ExchangeContext) -> None:
    """Do the server's side of one chunk: change the center, or the strategy's own vectors and the chunk's count."""
    strategy, span = chunks.strategy, chunks.spans[position]
    if not center.extras:
        strategy.server_chunk(center.vector[span], (), push, context, 0)
        return
    extras = tuple([extra[span] for extra in center.extras])
    held = int(center.counts[position])
    center.counts[position] = strategy.server_chunk(center.vector[span], extras, push, context, held)


def meet_in_memory(
    center: Center,
    chunks: Chunks,
    worker: int,
    order: Sequence[int],
    context: ExchangeContext,
    local: Vector,
    new_local: Vector,
    start: Vector,
    push: Vector,
    *,
    measure_distance: bool,
) -> float | None:
    """Push every chunk to a center that this process maps, and pull unless the strategy waits for a round.

    Args:
        center: Mapped or private.
        chunks: The vector's cut.
        worker: Who meets it; its exchange is open.
        order: Chunk positions in the order to take.
        context: Numbers of this exchange.
        local: The worker's parameters, (n_params,), read only.
        new_local: Receives the new parameters, (n_params,).
        start: What the worker began with, (n_params,); see ``Strategy.keeps_start``.
        push: Scratch of at least one chunk.
        measure_distance: Return the L2 norm of local - center.

    Returns:
        The distance, or None if it was not asked for or the worker does not look at the center first.
    """
    strategy, watched = chunks.strategy, center.watched
    worker_chunk, server_chunk = strategy.worker_chunk, strategy.server_chunk
    measure = measure_distance and strategy.pulls == "before"
    pulls_after, keeps_start = strategy.pulls == "after", strategy.keeps_start
    held, is_direct = chunks.held is not None, not center.extras
    parts, spans = chunks.views(center.vector), chunks.spans
    squares = []
    for position in order if center.locks is None else _locked(order, center.locks):
        span, part = spans[position], parts[position]
        own, new = local[span], new_local[span]
        pushed = push if len(part) == len(push) else push[: len(part)]
        if measure:
            np.subtract(own, part, out=pushed)
            squares.append(float(np.dot(pushed, pushed)))
        worker_chunk(own, part, new, pushed, start[span] if keeps_start else own, context)
        if held:
            chunks.hold_statistics(position, pushed)
        if position == watched:
            center.begin_watched_push(worker)
        if is_direct:
            server_chunk(part, (), pushed, context, 0)
        else:
            apply_push(center, chunks, position, pushed, context)
        if position == watched:
            center.end_watched_push(worker, pushed[: chunks.watch_floats])
        if pulls_after:
            np.copyto(new, part)
    return sum(squares) ** 0.5 if measure else None


def _locked(order: Sequence[int], locks: CenterLocks) -> Iterator[int]:
    """Hand out the positions; a chunk is locked until the next one is asked for, or the iterator is dropped."""
    with locks.whole():
        for position in order:
            with locks.chunk(position):
                yield position
