from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks, meet_in_memory
from deepspark_ops.exchange.center.locks import LockMode
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.strategies.base import ExchangeContext, Strategy, find_strategy
from deepspark_ops.exchange.strategies.easgd import Easgd
from deepspark_ops.param_vector import StatisticBlobs


def test_workers_begin_at_chunks_of_their_own() -> None:
    chunks = Chunks(10, 1, find_strategy("easgd"), StatisticBlobs())
    orders = [list(chunks.order(worker, 3)) for worker in range(3)]
    assert [order[0] for order in orders] == [0, 3, 6]
    assert all(sorted(order) == list(range(10)) for order in orders)


def test_statistics_are_no_part_of_a_push() -> None:
    statistics = StatisticBlobs.from_json([[2, 4, 4, 6, 6]])
    rng = np.random.default_rng(3)
    local, initial = rng.standard_normal((2, 9)).astype(np.float32)
    center = Center.in_memory(initial, CenterShape(9, 2, 3))
    chunks = Chunks(9, 4, find_strategy("easgd"), statistics)
    new_local, push = np.empty_like(local), np.empty(4, np.float32)
    distance = meet_in_memory(
        center, chunks, 0, (0, 1, 2), ExchangeContext(2, 0.5), local, new_local, local, push, measure_distance=True
    )
    np.testing.assert_array_equal(center.vector[2:7], initial[2:7])
    assert not np.array_equal(center.vector[:2], initial[:2])
    assert not np.array_equal(center.vector[7:], initial[7:])
    assert distance == pytest.approx(float(np.linalg.norm(local - initial)), rel=1e-6)


@dataclass(frozen=True)
class Failing(Easgd):
    def worker_chunk(self, *_: object) -> None:
        raise FloatingPointError


@pytest.mark.parametrize("mode", ["striped", "full"])
def test_a_failure_in_the_middle_leaves_nothing_locked(mode: LockMode) -> None:
    vector = np.zeros(8, np.float32)
    center = Center.in_memory(vector, CenterShape(8, 2, 2))
    center.use_locks(mode, timeout_s=0.1)

    def meet(strategy: Strategy) -> None:
        chunks = Chunks(8, 4, strategy, StatisticBlobs())
        meet_in_memory(
            center, chunks, 0, (0, 1), ExchangeContext(2, 0.5), vector, vector.copy(), vector, vector[:4].copy(),
            measure_distance=False,
        )  # fmt: skip

    with pytest.raises(FloatingPointError) as failure:
        meet(Failing())
    meet(find_strategy("easgd"))
    assert failure.value.__traceback__ is not None  # the frame that failed is still alive
