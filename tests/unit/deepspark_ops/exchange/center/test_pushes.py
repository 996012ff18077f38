from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from deepspark_ops.errors import WorkerReplaced
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.locks import LockMode
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.center.pushes import exchange_in_memory, push_applier, settle_all_unfinished
from deepspark_ops.exchange.center.worker_counters import UNCERTAIN, session_number
from deepspark_ops.exchange.strategies.base import ExchangeContext, Strategy, find_strategy
from deepspark_ops.exchange.strategies.easgd import Easgd
from deepspark_ops.exchange.strategies.local_sgd import LocalSgd
from deepspark_ops.exchange.strategies.softsync import Softsync
from deepspark_ops.param_vector import StatisticBlobs


def test_statistics_are_no_part_of_a_push_and_of_the_distance() -> None:
    statistics = StatisticBlobs.from_json([[2, 4, 4, 6, 6, 0.5]])
    rng = np.random.default_rng(3)
    local, initial = rng.standard_normal((2, 9)).astype(np.float32)
    center = Center.in_memory(initial, CenterShape(9, 2, 3))
    chunks = Chunks(9, 4, find_strategy("easgd"), statistics)
    new_local, push = np.empty_like(local), np.empty(4, np.float32)
    distance = exchange_in_memory(
        center, chunks, 0, (0, 1, 2), ExchangeContext(2, 0.5), local, new_local, local, push, measure_distance=True
    )
    np.testing.assert_array_equal(center.vector[2:7], initial[2:7])
    assert not np.array_equal(center.vector[:2], initial[:2])
    assert not np.array_equal(center.vector[7:], initial[7:])
    weights = np.array([0, 1, 7, 8])
    assert distance == pytest.approx(float(np.linalg.norm(local[weights] - initial[weights])), rel=1e-6)


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
        exchange_in_memory(
            center, chunks, 0, (0, 1), ExchangeContext(2, 0.5), vector, vector.copy(), vector, vector[:4].copy(),
            measure_distance=False,
        )  # fmt: skip

    with pytest.raises(FloatingPointError) as failure:
        meet(Failing())
    meet(find_strategy("easgd"))
    assert failure.value.__traceback__ is not None  # the frame that failed is still alive


def test_a_process_whose_place_was_taken_pushes_nothing_more() -> None:
    center = Center.in_memory(np.zeros(8, np.float32), CenterShape(8, 2, 2))
    center.admit(0, "old")
    chunks = Chunks(8, 4, find_strategy("downpour"), StatisticBlobs())
    apply = push_applier(center, chunks, 0, center.begin(0, session=session_number("old")))
    apply(0, np.ones(4, np.float32))
    center.admit(0, "new")
    with pytest.raises(WorkerReplaced, match=r"^worker 0: a newer process has taken its place; leaving$"):
        apply(1, np.ones(4, np.float32))
    assert center.vector.tolist() == [1.0] * 4 + [0.0] * 4


class Killed(BaseException):
    """Stands for kill -9: nothing that follows is done."""


@dataclass(frozen=True)
class KilledAfterTheSum(LocalSgd):
    def server_chunk(self, *args: Any) -> int:
        super().server_chunk(*args)
        raise Killed


@dataclass(frozen=True)
class KilledAfterTheGroup(Softsync):
    def server_chunk(self, *args: Any) -> int:
        if super().server_chunk(*args):
            return 1
        args[1][0].fill(9.0)  # the center has moved, and the sum is not yet empty
        raise Killed


def killed_in_a_push(killed: Strategy, n_before: int) -> tuple[Center, Chunks]:
    """Return a center of one chunk after ``n_before`` pushes of ones and a push in which worker 2 was killed."""
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 3, 1, killed.server_vectors))
    for worker in range(n_before):
        push(center, find_strategy(killed.name), worker)
    with pytest.raises(Killed):
        push(center, killed, 2)
    return center, Chunks(4, 4, find_strategy(killed.name), StatisticBlobs())


def push(center: Center, strategy: Strategy, worker: int) -> None:
    chunks = Chunks(4, 4, strategy, StatisticBlobs())
    push_applier(center, chunks, worker, ExchangeContext(3))(0, np.ones(4, np.float32))


def test_a_push_that_a_kill_left_in_the_sum_is_counted_with_the_next() -> None:
    center, _ = killed_in_a_push(KilledAfterTheSum(), 1)
    assert (center.extras[0][0], center.counts[0]) == (2.0, 1), "sum and count disagree"
    push(center, find_strategy("local_sgd"), 1)
    assert (center.extras[0][0], center.counts[0]) == (3.0, 3)
    assert center.counters[:, UNCERTAIN].tolist() == [0, 0, 1]


def test_a_round_ends_with_count_and_sum_of_one_mind() -> None:
    center, chunks = killed_in_a_push(KilledAfterTheSum(), 2)
    settle_all_unfinished(center, chunks)
    settle_all_unfinished(center, chunks)
    assert (center.extras[0][0], center.counts[0]) == (3.0, 3)
    assert center.counters[:, UNCERTAIN].tolist() == [0, 0, 1]


def test_a_group_that_a_kill_left_in_the_center_is_not_applied_again() -> None:
    center, _ = killed_in_a_push(KilledAfterTheGroup(), 1)
    moved = center.vector.copy()
    push(center, find_strategy("softsync"), 1)
    assert (center.extras[0][0], center.counts[0]) == (1.0, 1), "a new group has begun"
    np.testing.assert_array_equal(center.vector, moved)
    assert center.counters[:, UNCERTAIN].tolist() == [0, 0, 1]


def test_a_kill_after_the_count_is_no_doubt() -> None:
    center, chunks = killed_in_a_push(KilledAfterTheSum(), 1)
    center.counts[0] = 2  # it came so far
    settle_all_unfinished(center, chunks)
    assert center.counts[0] == 2
    assert not center.counters[:, UNCERTAIN].any()
    assert not center.unfinished.any()
