"""Pushes to the center: the server's side of a chunk, and a whole exchange with a center that this process maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from deepspark_ops.errors import PushRefused
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.locks import CenterLocks
from deepspark_ops.exchange.center.worker_counters import UNCERTAIN
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.param_vector import Vector


def push_applier(
    center: Center, chunks: Chunks, worker: int, context: ExchangeContext, first: int = 0
) -> Callable[[int, Vector], None]:
    """Return ``apply(position, push)``, which applies the pushes of one exchange, chunk by chunk.

    All pushes to the center go through ``apply``: a server calls it for a worker by socket, a worker in shared memory
    calls ``apply`` itself. ``first`` is the first chunk of the exchange. ``apply`` raises ``WorkerFenced`` or
    ``PushRefused`` before any change. The caller holds the chunk's lock, if there are locks.
    """
    parts, watched = chunks.views(center.vector), center.watched
    server_chunk, sessions, session = chunks.strategy.server_chunk, center.sessions, context.session
    adds_directly, check = not center.extras, center.push_check
    looked_at = () if check is None else check.positions(context.ended_before, first)

    def apply(position: int, push: Vector) -> None:
        if sessions[worker] != session:
            center.check_session(worker, session)
        if position in looked_at:
            _look(center, chunks, worker, position, push, context)
        if position == watched:
            center.begin_watched_push(worker)
        if adds_directly:
            server_chunk(parts[position], (), push, context, 0)
        else:
            _gather(center, chunks, worker, position, push, context)
        if position == watched:
            center.end_watched_push(worker, push[: chunks.watch_floats])

    return apply


def _look(center: Center, chunks: Chunks, worker: int, position: int, push: Vector, context: ExchangeContext) -> None:
    """Refuse a nonsense push."""
    assert center.push_check is not None
    try:
        center.push_check.look(push, context.ended_before)
    except PushRefused as error:
        start, stop = chunks.ranges[position]
        raise center.refuse_push(worker, f"push of parameters [{start}, {stop})", error) from error


def _gather(center: Center, chunks: Chunks, worker: int, position: int, push: Vector, context: ExchangeContext) -> None:
    """Note the push, change the strategy's own vectors, count the push. The note shows a kill in between."""
    if center.unfinished[position]:
        settle_unfinished(center, chunks, position)
    span = chunks.spans[position]
    extras = tuple([extra[span] for extra in center.extras])
    n_held = int(center.counts[position])
    center.unfinished[position] = 1 + worker + n_held * len(center.counters)
    center.counts[position] = chunks.strategy.server_chunk(center.vector[span], extras, push, context, n_held)
    center.unfinished[position] = 0


def settle_unfinished(center: Center, chunks: Chunks, position: int) -> None:
    """Match vectors and count of a chunk after a kill during a push. The caller holds the chunk's lock.

    Nobody knows whether the sum has the push: the strategy decides, and the chunk is counted as uncertain.
    """
    noted = int(center.unfinished[position])
    n_before, worker = divmod(noted - 1, len(center.counters))
    if noted and int(center.counts[position]) == n_before:
        span = chunks.spans[position]
        extras = tuple([extra[span] for extra in center.extras])
        center.counts[position] = chunks.strategy.count_unfinished(extras, n_before)
        center.counters[worker, UNCERTAIN] += np.uint64(1)
    center.unfinished[position] = 0


def settle_all_unfinished(center: Center, chunks: Chunks) -> None:
    """Call ``settle_unfinished`` for every chunk, before a round's sum is used; lock the chunks in turn."""
    for position in locked_positions(center, np.flatnonzero(center.unfinished).tolist()):
        settle_unfinished(center, chunks, position)


def apply_rest(center: Center, chunks: Chunks) -> None:
    """Apply the pushes that the strategy's vectors hold at the end of the run; see ``Strategy.apply_rest``."""
    for position in locked_positions(center, range(len(chunks.spans))):
        if center.unfinished[position]:
            settle_unfinished(center, chunks, position)
        n_held = int(center.counts[position])
        if n_held:
            span = chunks.spans[position]
            extras = tuple([extra[span] for extra in center.extras])
            chunks.strategy.apply_rest(center.vector[span], extras, n_held, center.live_workers)
            center.counts[position] = 0


def exchange_in_memory(
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
    center_copy: Vector | None = None,
    measure_distance: bool,
) -> float | None:
    """Push every chunk to a center that this process maps, and pull unless the strategy waits for a round.

    Args:
        center: Mapped or private.
        chunks: The vector's cut.
        worker: The worker of the open exchange.
        order: Chunk positions in the order to take.
        context: Numbers of this exchange.
        local: The worker's parameters, (n_params,), read only.
        new_local: Receives the new parameters, (n_params,).
        start: The worker's parameters after the last exchange or pull, (n_params,); see ``Strategy.keeps_start``.
        push: Scratch of at least one chunk.
        center_copy: Receives the center as the pushes leave it, (n_params,), where the strategy pulls first.
        measure_distance: Return the L2 norm of local - center, without BatchNorm's statistics.

    Returns:
        The distance, or None if it was not asked for or the worker does not look at the center first.

    Raises:
        WorkerFenced: Another process is the worker now.
        ExchangeUnavailable: A lock was not free in time.
    """
    strategy = chunks.strategy
    worker_chunk, apply = strategy.worker_chunk, push_applier(center, chunks, worker, context, order[0])
    measure = measure_distance and strategy.pulls == "before"
    pulls_after, keeps_start = strategy.pulls == "after", strategy.keeps_start
    has_statistics = chunks.statistics is not None
    parts, spans = chunks.views(center.vector), chunks.spans
    squares = []
    for position in locked_positions(center, order):
        span, part = spans[position], parts[position]
        part_of_local, new = local[span], new_local[span]
        pushed = push if len(part) == len(push) else push[: len(part)]
        if measure:
            np.subtract(part_of_local, part, out=pushed)
            chunks.clear_statistics(position, pushed)
            squares.append(float(np.dot(pushed, pushed)))
        worker_chunk(part_of_local, part, new, pushed, start[span] if keeps_start else part_of_local, context)
        if has_statistics:
            chunks.clear_statistics(position, pushed)
        if center_copy is not None:
            np.add(part, pushed, out=center_copy[span])
        apply(position, pushed)
        if pulls_after:
            np.copyto(new, part)
    return sum(squares) ** 0.5 if measure else None


def locked_positions(center: Center, order: Sequence[int]) -> Iterable[int]:
    """Return the positions; each chunk is locked, if there are locks, until the caller takes the next position."""
    return order if center.locks is None else _locked(order, center.locks)


def _locked(order: Sequence[int], locks: CenterLocks) -> Iterator[int]:
    """Yield the positions; a chunk is locked until the caller takes the next position or drops the iterator."""
    with locks.center():
        for position in order:
            with locks.chunk(position):
                yield position
