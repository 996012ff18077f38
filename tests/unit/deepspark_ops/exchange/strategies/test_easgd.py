from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.strategies.base import ExchangeContext, configure, find_strategy
from deepspark_ops.train.worker.rates.rate_scale import plan_rate_scale
from tests.reference.slow_easgd import slow_elastic_exchange, slow_run
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

floats = st.floats(-1e3, 1e3, width=32)
pairs = st.lists(st.tuples(floats, floats), min_size=1, max_size=40)


@given(pairs, st.floats(0.01, 1.0))
def test_one_chunk_equals_the_slow_reference_bit_for_bit(values: list[tuple[float, float]], alpha: float) -> None:
    local, center = (np.float32(v) for v in zip(*values, strict=True))
    new_local, push = np.empty_like(local), np.empty_like(local)
    strategy, context = find_strategy("easgd"), ExchangeContext(2, alpha)
    expected = slow_elastic_exchange(local.tolist(), center.tolist(), alpha)
    strategy.worker_chunk(local, center, new_local, push, local, context)
    assert strategy.server_chunk(center, (), push, context, 0) == 0
    np.testing.assert_array_equal(new_local, np.float32(expected[0]))
    np.testing.assert_array_equal(center, np.float32(expected[1]))


def test_exchange_keeps_the_sum() -> None:
    rng = np.random.default_rng(1)
    local, center = rng.standard_normal((2, 1000)).astype(np.float32)
    old_sum = local.astype(np.float64).sum() + center.astype(np.float64).sum()
    new_local, push = np.empty_like(local), np.empty_like(local)
    strategy, context = find_strategy("easgd"), ExchangeContext(2, 0.45)
    strategy.worker_chunk(local, center, new_local, push, local, context)
    assert strategy.server_chunk(center, (), push, context, 0) == 0
    new_sum = new_local.astype(np.float64).sum() + center.astype(np.float64).sum()
    assert abs(new_sum - old_sum) < 1e-4  # float32 rounding of 2,000 elements of size 1


def test_progress_is_one_step_shared_by_workers_and_center() -> None:
    assert find_strategy("easgd").progress_per_step(3) == 0.25


def test_a_heavy_center_keeps_the_weighted_sum() -> None:
    strategy, alpha, weight = configure("easgd", {"center_weight": 4.0}).for_workers(16), 0.4, 4.0
    local, center = np.float32([3.0, -1.0]), np.float32([1.0, 1.0])
    new_local, push = np.empty_like(local), np.empty_like(local)
    strategy.worker_chunk(local, center, new_local, push, local, ExchangeContext(16, alpha))
    strategy.server_chunk(center, (), push, ExchangeContext(16, alpha), 0)
    assert new_local.tolist() == pytest.approx([3 - 0.8, -1 + 0.8])
    assert center.tolist() == pytest.approx([1 + 0.8 / weight, 1 - 0.8 / weight])


def test_the_center_is_heavier_with_many_workers() -> None:
    easgd = find_strategy("easgd")
    weights = {p: easgd.weight_of_center(p) for p in (2, 4, 5, 8, 16, 32)}
    assert weights == {2: 1.0, 4: 1.0, 5: 2.0, 8: 2.0, 16: 2.0, 32: 4.0}
    for p, moves in ((8, 0.15), (16, 2.4 / 16), (32, 2.4 / 32)):
        assert easgd.default_moving_rate(p) / weights[p] == pytest.approx(moves)
        assert easgd.progress_per_step(p) == pytest.approx(1 / (p + weights[p]))
    paper = configure("easgd", {"center_weight": 1.0})
    assert paper.default_moving_rate(16) == pytest.approx(0.15)
    assert paper.progress_per_step(16) == pytest.approx(1 / 17)
    assert [easgd.rate_factor(p) for p in (2, 4, 8, 16, 32)] == pytest.approx([3, 5, 10, 18, 36])


@pytest.mark.parametrize("weight", [0.5, -1.0, float("nan")])
def test_a_center_lighter_than_a_worker_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match=r"center_weight=.*: must be at least 1; 0 goes by"):
        configure("easgd", {"center_weight": weight})


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_of_momentum_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"momentum_from_center=.*: must be in \[0, 1\]"):
        configure("easgd", {"momentum_from_center": share})


def test_the_papers_variant_is_its_algorithm_and_nothing_else(tmp_path: Path) -> None:
    """Eight workers in turn on a slope: the option computes Algorithm 1 with beta = 0.9 of the slow reference."""
    n_workers, n_params = 8, 6
    running = configure("easgd", {"variant": "paper"}).for_workers(n_workers)
    assert (running.momentum_from_center, running.weight_of_center(n_workers)) == (0.0, 1.0)
    assert not running.measured_rates
    scale = plan_rate_scale(
        "auto",
        progress_per_step=running.progress_per_step(n_workers),
        factor=running.rate_factor(n_workers),
        n_workers=n_workers,
        origin=0,
        max_iter=5_000,
    )
    assert {scale.at(clock) for clock in (0, 100, 4_999)} == {1.0}, "the rates are the solver's"
    settings = make_settings(tmp_path, n_params=n_params, n_workers=n_workers, options={"variant": "paper"})
    initial = np.linspace(-1, 1, n_params).astype(np.float32)
    exchange = LocalExchange(settings, initial)
    links = [exchange.link() for _ in range(n_workers)]
    for worker, link in enumerate(links):
        link.join(worker)
    locals_ = [link.pull() for link in links]
    steps = []
    for turn in range(5 * n_workers):
        worker = turn % n_workers
        step = np.random.default_rng(turn).standard_normal(n_params).astype(np.float32)
        locals_[worker], _ = links[worker].exchange(locals_[worker] + step)
        steps.append((worker, step.tolist()))
    expected, center = slow_run(initial.tolist(), steps, n_workers, 0.9 / n_workers)
    np.testing.assert_array_equal(locals_, np.float32(expected))
    np.testing.assert_array_equal(exchange.center.vector, np.float32(center))


def test_the_rate_of_inner_products_has_a_switch_that_leaves_the_warm_up_alone() -> None:
    switched = configure("easgd", {"measured_rates": False}).for_workers(8)
    plain = find_strategy("easgd").for_workers(8)
    assert (switched.measured_rates, plain.measured_rates) == (False, True)
    assert switched.rate_factor(8) == plain.rate_factor(8) == pytest.approx(10)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match='variant="papers"; allowed: default, paper'):
        configure("easgd", {"variant": "papers"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"center": "star"}, 'center="star"; allowed: flat, tree'),
        ({"center": "tree", "root_comm_period": -1}, "root_comm_period=-1: must be at least 1; 0 goes by"),
        ({"center": "tree", "root_moving_rate": 1.5}, r"root_moving_rate=1\.5: must be in \[0, 1\]; 0 goes by"),
        ({"root_comm_period": 4}, "root_comm_period and root_moving_rate are for a tree of centers; set center: tree"),
    ],
)
def test_a_wrong_tree_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure("easgd", options)


def test_one_worker_has_no_tree() -> None:
    assert configure("easgd", {"center": "tree"}).for_workers(1).root_level is None
    assert configure("easgd", {"center": "tree"}).for_workers(2).root_level == (0, 0.0)
