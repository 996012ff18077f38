from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from deepspark_ops.errors import PushRefused
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.center.push_check import (
    FACTOR,
    MEMORY_LOOK,
    MEMORY_TURNS,
    WARM_UP_EXCHANGES,
    PushCheck,
)
from deepspark_ops.exchange.center.pushes import push_applier
from deepspark_ops.exchange.center.worker_counters import REFUSED
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.param_vector import StatisticBlobs, Vector

N_CHUNKS = 3


def push_of(size: float, seed: int = 0) -> Vector:
    """A chunk whose root mean square is ``size``."""
    values = np.random.default_rng(seed).standard_normal(5_000)
    return np.float32(values * size / math.sqrt(np.mean(values * values)))


def warmed_up(size: float = 1e-3) -> PushCheck:
    check = PushCheck(N_CHUNKS)
    for turn in range(WARM_UP_EXCHANGES):
        for chunk in range(N_CHUNKS):
            check.look(push_of(size, chunk), turn)
    return check


@pytest.mark.parametrize("at", [0, 2_500, 4_999])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_one_number_that_is_nonsense_is_enough_from_the_first_push_on(value: float, at: int) -> None:
    push = push_of(1e-3)
    push[at] = value
    with pytest.raises(PushRefused, match="not finite, or too large to be squared"):
        PushCheck(N_CHUNKS).look(push, 0)


def test_a_push_far_longer_than_all_before_is_refused() -> None:
    check = warmed_up(1e-3)
    check.look(push_of(0.9e-3 * FACTOR), 50)
    check = warmed_up(1e-3)
    with pytest.raises(PushRefused, match=r"1.1e\+03 in root mean square, and never were above 0.001 in this run"):
        check.look(push_of(1.1e-3 * FACTOR), 50)
    check.look(push_of(1e-3), 51)


def test_what_was_refused_does_not_count_as_seen() -> None:
    check = warmed_up(1e-3)
    for _ in range(3):
        with pytest.raises(PushRefused):
            check.look(push_of(1e4), 50)


def honest_sizes() -> dict[str, list[float]]:
    """Sizes of the pushes of runs that go well, exchange by exchange."""
    return {
        "a rate that begins at nearly nothing": [1e-9 * 1.05**k for k in range(400)],
        "a first push of nothing, and then all": [0.0] * 500 + [1.0] * 5,
        "a rate that falls and is raised again": [1e-2] * 100 + [1e-7] * 500 + [1e-2] * 5,
        "a gradient that explodes": [1e-2] * 200 + [1e3, 1e-2],
        "the last exchange of a run that has converged": [0.1 * 0.9**k for k in range(300)],
    }


@pytest.mark.parametrize("run", honest_sizes())
@pytest.mark.parametrize("samples", [False, True])
def test_honest_pushes_are_taken(run: str, samples: bool) -> None:
    check = PushCheck(N_CHUNKS, samples=samples)
    for turn, size in enumerate(honest_sizes()[run]):
        for chunk in range(N_CHUNKS):
            check.look(push_of(size, chunk), turn)


@pytest.mark.parametrize("n_floats", [1, 100, MEMORY_LOOK, MEMORY_LOOK + 1, 50_000, 131_072])
def test_a_part_at_a_time_all_of_a_chunk_is_looked_at(n_floats: int) -> None:
    check = PushCheck(1, samples=True)
    positions = set(np.linspace(0, n_floats - 1, 40).astype(int).tolist())
    refused = set()
    for at in positions:
        push = np.ones(n_floats, np.float32)
        push[at] = math.nan
        for turn in range(n_floats // MEMORY_LOOK + 2):
            try:
                check.look(push, turn)
            except PushRefused:
                refused.add(at)
    assert refused == positions


def test_one_after_another_all_chunks_are_looked_at() -> None:
    check = PushCheck(10, samples=True)
    turns = range(7, 7 + 10 * MEMORY_TURNS)
    assert all(any(chunk in check.positions(turn, 3) for turn in turns) for chunk in range(10))
    assert all(3 in check.positions(turn, 3) for turn in turns)
    assert all(chunk in PushCheck(10).positions(7, 3) for chunk in range(10))


def test_the_first_chunk_of_an_exchange_is_always_looked_at() -> None:
    rule = find_strategy("easgd")
    for turn in range(MEMORY_TURNS):
        center = Center.in_memory(np.ones(40, np.float32), CenterShape(40, 2, 10))
        center.check_pushes(rule, samples=True)
        context = center.begin(1)._replace(ended_before=turn)
        apply = push_applier(center, Chunks(40, 4, rule, StatisticBlobs()), 1, context, 7)
        with pytest.raises(PushRefused):
            apply(7, np.full(4, math.nan, np.float32))
        assert (center.vector == 1.0).all()


def applying(strategy: str) -> tuple[Center, Callable[[int, Vector], None]]:
    rule = find_strategy(strategy)
    center = Center.in_memory(np.ones(8, np.float32), CenterShape(8, 2, 2, rule.server_vectors))
    center.check_pushes(rule)
    chunks = Chunks(8, 4, rule, StatisticBlobs())
    return center, push_applier(center, chunks, 1, center.begin(1))


@pytest.mark.parametrize("strategy", [name for name in strategy_names() if not find_strategy(name).repeats_data])
def test_a_refused_push_changes_nothing_and_is_counted(strategy: str) -> None:
    center, apply = applying(strategy)
    nonsense = np.float32([1, math.nan, 1, 1])
    with pytest.raises(
        PushRefused, match=r"worker 1: push of parameters \[4, 8\) refused: it holds numbers that are not"
    ):
        apply(1, nonsense)
    assert (center.vector == 1.0).all()
    assert not any(extra.any() for extra in center.extras)
    assert not center.counts.any()
    assert center.counters[:, REFUSED].tolist() == [0, 1]


def test_a_strategy_with_backtracking_accepts_nan() -> None:
    center, apply = applying("lbfgs")
    apply(1, np.float32([1, math.nan, 1, 1]))
    assert np.isnan(center.extras).any()
