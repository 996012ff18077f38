from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.lost_updates import LostUpdates
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.center.pushes import exchange_in_memory
from deepspark_ops.exchange.center.worker_counters import BEGUN, WATCH_BEGUN
from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.param_vector import StatisticBlobs, StatisticLayer

N_PARAMS, CHUNK = 20_000, 6_000


def parts(
    strategy: str = "easgd", statistics: StatisticBlobs | None = None
) -> tuple[Center, Chunks, np.random.Generator]:
    rng = np.random.default_rng(3)
    chunks = Chunks(N_PARAMS, CHUNK, find_strategy(strategy), statistics or StatisticBlobs())
    center = Center.in_memory(
        rng.standard_normal(N_PARAMS).astype(np.float32), CenterShape(N_PARAMS, 2, len(chunks.ranges))
    )
    return center, chunks, rng


def exchange(center: Center, chunks: Chunks, worker: int, local: np.ndarray) -> np.ndarray:
    context = center.begin(worker, 0.45)
    new_local, push = np.empty_like(local), np.empty(CHUNK, np.float32)
    order = chunks.order(worker, 2)
    exchange_in_memory(center, chunks, worker, order, context, local, new_local, local, push, measure_distance=False)
    center.end(worker, context, 8 * len(local))
    return new_local


def test_without_overlaps_the_deviation_is_rounding() -> None:
    center, chunks, rng = parts()
    watch = LostUpdates(center, chunks)
    start = center.snapshot()
    positions = []
    for _ in range(2 * len(chunks.ranges)):
        center_before = center.snapshot()
        for _ in range(7):
            for worker in (0, 1):
                exchange(center, chunks, worker, rng.standard_normal(N_PARAMS).astype(np.float32))
        finding = watch.finding()
        assert finding is not None
        first, stop = chunks.ranges[finding.position]
        stop = min(stop, first + chunks.watch_floats)
        # Independently: what the center gained is what was pushed, up to rounding.
        gained = center.vector[first:stop].astype(np.float64).sum() - center_before[first:stop].sum(dtype=np.float64)
        assert gained != 0.0
        assert finding.pushes == 14
        assert 0.0 < abs(finding.deviation) <= finding.rounding < 1e-2 * abs(gained)
        assert finding.lost_updates == 0.0
        positions.append(finding.position)
        watch.step()
        watch.step()
    assert positions == [0, 1, 2, 3, 0, 1, 2, 3]
    assert (center.vector != start).all()


def test_a_lost_push_is_seen_with_its_share() -> None:
    center, chunks, rng = parts()
    watch = LostUpdates(center, chunks)
    for step in range(10):
        old_center = center.snapshot()
        exchange(center, chunks, 0, 1.0 + np.abs(rng.standard_normal(N_PARAMS)).astype(np.float32))
        if step == 4:
            center.vector[:] = old_center  # as if another process had written back what it read
    finding = watch.finding()
    assert finding is not None
    # The center comes closer to the worker with every push, so the fifth is no tenth of all.
    assert 0.005 < finding.lost_updates < 0.2
    assert abs(finding.deviation) > 100 * finding.rounding


def test_nothing_pushed_is_no_finding_and_the_chunk_stays() -> None:
    center, chunks, rng = parts()
    watch = LostUpdates(center, chunks)
    assert watch.finding() is None
    exchange(center, chunks, 0, rng.standard_normal(N_PARAMS).astype(np.float32))
    finding = watch.finding()
    assert finding is not None
    assert (finding.position, finding.pushes) == (0, 1)


def test_a_chunk_is_watched_once_the_exchanges_that_do_not_know_of_it_are_over() -> None:
    center, chunks, rng = parts()
    watch = LostUpdates(center, chunks)
    local = rng.standard_normal(N_PARAMS).astype(np.float32)
    exchange(center, chunks, 0, local)
    ticket = center.begin(1)  # began before the choice of the next chunk: may push into the chunk without a count
    assert watch.finding() is not None
    watch.step()
    watch.step()
    exchange(center, chunks, 0, local)
    assert watch.finding() is None
    center.end(1, ticket, 0)
    watch.step()
    exchange(center, chunks, 0, local)
    finding = watch.finding()
    assert finding is not None
    assert (finding.position, finding.pushes) == (1, 1)


def test_a_worker_that_died_in_a_push_holds_nothing_up_once_it_is_abandoned() -> None:
    center, chunks, rng = parts()
    watch = LostUpdates(center, chunks)
    center.begin(1)
    center.counters[1, WATCH_BEGUN] += np.uint64(1)
    exchange(center, chunks, 0, rng.standard_normal(N_PARAMS).astype(np.float32))
    assert watch.finding() is None
    center.abandon(1)
    assert center.counters[1, BEGUN] == 0
    finding = watch.finding()
    assert finding is not None
    assert finding.lost_updates == 0.0


def test_statistics_of_batch_norm_go_other_ways() -> None:
    center, chunks, rng = parts(statistics=StatisticBlobs((StatisticLayer((10, 20), (20, 30), 30, 0.5),)))
    watch = LostUpdates(center, chunks)
    exchange(center, chunks, 0, rng.standard_normal(N_PARAMS).astype(np.float32))
    center.vector[10:31] += 5.0
    finding = watch.finding()
    assert finding is not None
    assert finding.lost_updates == 0.0


def test_it_rests_before_every_chunk() -> None:
    center, chunks, rng = parts()
    watch = LostUpdates(center, chunks, rest_steps=3)
    local = rng.standard_normal(N_PARAMS).astype(np.float32)
    for position in (0, 1):
        watched = []
        for _ in range(5):
            exchange(center, chunks, 0, local)
            watched.append(center.watched)
            watch.step()
        assert watched == [-1, -1, -1, position, position]
        exchange(center, chunks, 1, local)
        finding = watch.finding()
        assert finding is not None
        # The choice, the open exchanges at the choice, and the first reading: one step each.
        assert (finding.position, finding.pushes, finding.lost_updates) == (position, 1, 0.0)


@pytest.mark.parametrize("strategy", ["single_worker", "local_sgd"])
def test_other_strategies_promise_nothing(strategy: str) -> None:
    center, chunks, _ = parts(strategy)
    watch = LostUpdates(center, chunks)
    watch.step()
    assert watch.finding() is None
    assert center.watched == -1
