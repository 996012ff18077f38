from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import (
    ExchangeContext,
    Strategy,
    check_moving_rate,
    configure,
    find_strategy,
    rate_beside_others,
    strategy_names,
)
from tests.reference.slow_strategies import AT_EACH_PUSH


def test_unknown_name_lists_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        find_strategy("easgt")
    assert str(caught.value) == (
        f'strategy "easgt" is unknown; known: {", ".join(strategy_names())}; did you mean "easgd"?'
    )


def test_alias_is_the_same_object() -> None:
    assert find_strategy("eamsgd") is find_strategy("easgd")


@pytest.mark.parametrize("name", strategy_names())
def test_strategies_are_frozen_and_have_a_description(name: str) -> None:
    strategy = find_strategy(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.anything = 1  # type: ignore[attr-defined]
    assert strategy.__doc__ is not None
    assert 0.0 < strategy.progress_per_step(4) <= 1.0


@pytest.mark.parametrize("name", [name for name in strategy_names() if not find_strategy(name).repeats_data])
def test_one_worker_is_plain_sgd(name: str) -> None:
    single = find_strategy(name).for_workers(1)
    assert single.name == "single_worker"
    assert single.progress_per_step(1) == 1.0


def movement_of_the_center(strategy: Strategy, n_workers: int, comm_period: int, n_ticks: int) -> float:
    """Return how far the center goes down a slope of 1 at rate 1 with momentum 0.9, workers taking turns."""
    center, push = np.zeros(1, np.float32), np.zeros(1, np.float32)
    extras = tuple(np.zeros(1, np.float32) for _ in range(strategy.server_vectors))
    locals_, starts = np.zeros((n_workers, 1), np.float32), np.zeros((n_workers, 1), np.float32)
    velocity, held = np.zeros(n_workers), 0
    context = ExchangeContext(n_workers, strategy.default_moving_rate(n_workers), staleness=n_workers - 1)
    for turn in range(n_ticks // comm_period):
        worker = turn % n_workers
        for _ in range(comm_period):
            velocity[worker] = 0.9 * velocity[worker] + 1.0
            locals_[worker] -= np.float32(velocity[worker])
        new_local = np.zeros(1, np.float32)
        strategy.worker_chunk(locals_[worker], center, new_local, push, starts[worker], context)
        held = strategy.server_chunk(center, extras, push, context, held)
        locals_[worker] = starts[worker] = new_local if strategy.pulls == "before" else center
    return float(center[0])


@pytest.mark.parametrize("comm_period", [1, 10])
@pytest.mark.parametrize("n_workers", [2, 4])
@pytest.mark.parametrize("name", sorted({find_strategy(name).name for name in AT_EACH_PUSH}))
def test_declared_progress_is_the_centers(name: str, n_workers: int, comm_period: int) -> None:
    strategy = find_strategy(name)
    n_ticks = 4_000
    plain_sgd = -10.0 * n_ticks  # 1 / (1 - momentum) per step
    progress = movement_of_the_center(strategy, n_workers, comm_period, n_ticks) / plain_sgd
    assert progress == pytest.approx(strategy.progress_per_step(n_workers), rel=0.03)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_moving_rate_outside_its_range_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"must be in \(0, 1\]; above 0.5 the exchange overshoots"):
        check_moving_rate(find_strategy("easgd"), rate, 2)


def test_moving_rate_error_reads_as_the_style_guide_says() -> None:
    with pytest.raises(ConfigError) as caught:
        check_moving_rate(find_strategy("easgd"), 1.5, 2)
    assert str(caught.value) == "moving_rate=1.5: must be in (0, 1]; above 0.5 the exchange overshoots"


@pytest.mark.parametrize(
    ("rate", "n_workers", "n_warnings"), [(0.5, 2, 0), (0.6, 1, 0), (0.6, 2, 1), (0.3, 4, 0), (1.0, 3, 1)]
)
def test_large_moving_rates_have_a_warning(rate: float, n_workers: int, n_warnings: int) -> None:
    assert len(check_moving_rate(find_strategy("easgd"), rate, n_workers)) == n_warnings


@pytest.mark.parametrize(("n_workers", "expected"), [(1, 0.45), (2, 0.45), (3, 0.3), (4, 0.3), (8, 0.3), (32, 0.3)])
def test_default_moving_rate(n_workers: int, expected: float) -> None:
    easgd = find_strategy("easgd")
    assert np.isclose(easgd.default_moving_rate(n_workers), expected)
    assert check_moving_rate(easgd, None, n_workers) == []


def test_the_description_of_alpha_has_the_default_moving_rates() -> None:
    easgd, deepspark = find_strategy("easgd"), find_strategy("deepspark")
    rates = [easgd.default_moving_rate(p) for p in range(2, 65)]
    description = str(TrainConfig.model_fields["moving_rate"].description)
    assert set(rates[1:]) == {rates[1]}
    assert f"default {rates[0]:g} with 2 workers, {rates[1]:g} with more" in description
    assert "deepspark: 2.4 / n_workers with more than 8" in description
    assert [deepspark.default_moving_rate(p) for p in (8, 9, 24)] == pytest.approx([rates[1], 2.4 / 9, 0.1])


def _distance_after_rounds(rates: list[float]) -> float:
    """Play exchanges that all read the center before any has moved the center, the worst possible overlap."""
    rng = np.random.default_rng(0)
    locals_, center = rng.normal(size=len(rates)), 0.0
    for _ in range(100):
        pushes = rng.permutation(rates) * (locals_ - center)
        locals_, center = locals_ - pushes, center + pushes.sum()
    return float(np.abs(locals_ - center).max())


@pytest.mark.parametrize("n_workers", [2, 8, 32])
def test_exchanges_that_overlap_do_not_overshoot(n_workers: int) -> None:
    shared = [rate_beside_others(0.3, n_open) for n_open in range(n_workers)]
    assert _distance_after_rounds(shared) < 0.1
    assert (_distance_after_rounds([0.3] * n_workers) > 1e3) == (n_workers >= 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no": 1}, 'option "no" of strategy downpour is unknown; allowed: push_scale'),
        ({"push_scale": "half"}, "push_scale='half' of strategy downpour: expected float"),
        ({"push_scale": True}, "push_scale=True of strategy downpour: expected float"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure("downpour", options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_strategy_without_options_says_so() -> None:
    with pytest.raises(ConfigError, match='option "no" of strategy sync is unknown; allowed: none'):
        configure("sync", {"no": 1})
