"""The factor on base_lr: target, warm-up and logged reason."""

from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.train.worker.rates.rate_scale import PresentRateScale, RateScale, plan_rate_scale
from tests.reference.easgd_growth import largest_growth


def scale_plan(setting="auto", *, factor=3.0, progress=None, n_workers=2, origin=0, max_iter=1000):
    return plan_rate_scale(
        setting,
        progress_per_step=progress or 1 / factor,
        factor=factor,
        n_workers=n_workers,
        origin=origin,
        max_iter=max_iter,
    )


def test_one_worker_is_exactly_one() -> None:
    scale = scale_plan(factor=1.0, n_workers=1)
    assert [scale.at(clock) for clock in (0, 1, 500, 999)] == [1.0] * 4


def test_auto_inverts_the_progress_after_a_linear_warm_up() -> None:
    scale = scale_plan()
    assert scale.at(0) == 1.0
    assert scale.at(50) == pytest.approx(2.0)  # halfway through 10 % of 1000
    assert scale.at(100) == scale.at(900) == pytest.approx(3.0)
    assert "warm-up from 1 over 100 minibatches" in scale.reason


def test_auto_is_capped_and_says_so() -> None:
    scale = scale_plan(progress=1 / 9, factor=4.0, n_workers=8)
    assert scale.at(10_000) == 4.0
    assert "at most 4 of 9 by the strategy's limit" in scale.reason


@pytest.mark.parametrize(
    ("n_workers", "factor", "max_iter", "warmup"),
    [
        (8, 10, 5_000, 2_000),
        (8, 10, 2_000, 800),
        (8, 10, 100_000, 2_000),
        (8, 10, 600, 400),
        (4, 5, 5_000, 500),
        (4, 5, 1_000, 400),
        (5, 7, 5_000, 875),
        (16, 18, 100_000, 7_200),
    ],
)
def test_a_factor_above_4_rises_by_1_in_25_updates_of_each_worker(
    n_workers: int, factor: float, max_iter: int, warmup: int
) -> None:
    scale = scale_plan(factor=factor, n_workers=n_workers, max_iter=max_iter)
    assert (scale.target, scale.warmup) == (factor, warmup)
    assert scale_plan(progress=1 / 9, factor=4.0, n_workers=8, max_iter=100_000).warmup == 500


def test_auto_keeps_to_the_strategys_limit() -> None:
    assert scale_plan(factor=1.0).at(900) == 1.0
    below = scale_plan(progress=1.0, factor=1 / 3, n_workers=4)
    assert [below.at(clock) for clock in (0, 50, 999)] == [1 / 3] * 3  # no warm-up downwards
    assert "rate_scale 0.333: steps of one of 4 workers" in below.reason
    assert scale_plan(2.0, factor=1 / 3).at(0) == 2.0  # what the user gives is taken


def test_warm_up_is_limited_and_counts_from_the_origin() -> None:
    scale = scale_plan(origin=10_000, max_iter=100_000)
    assert scale.warmup == 500
    assert scale.at(10_000) == 1.0
    assert scale.at(10_250) == pytest.approx(2.0)


def test_a_run_that_goes_on_warms_up_for_the_steps_that_are_left() -> None:
    """From 4,000 to 5,000 there are 1,000 steps; a tenth of the steps is the warm-up."""
    scale = scale_plan(origin=4_000, max_iter=5_000)
    assert scale.warmup == 100
    assert scale.at(4_050) == pytest.approx(2.0)


def test_a_short_run_warms_up_no_faster_and_ends_at_a_smaller_factor() -> None:
    scale = scale_plan(max_iter=20)
    assert (scale.warmup, scale.target) == (100, 3.0)
    assert scale.at(20) == pytest.approx(1.4)
    assert scale.reason.endswith("warm-up from 1 over 100 minibatches, of which this run has 20: it ends at 1.4")
    assert scale_plan(factor=5.0, n_workers=4, max_iter=20).warmup == 200


def test_none_and_a_number_are_taken_as_given() -> None:
    assert scale_plan("none").at(0) == scale_plan("none").at(999) == 1.0
    assert scale_plan(2.5).at(0) == scale_plan(2.5).at(999) == 2.5


def largest_rate(n_workers: int, tau: int) -> float:
    weight = 1.0 if n_workers <= 4 else 2.0
    rates = np.arange(0.1, 4.6, 0.05)
    grows = (largest_growth(n_workers, rate, tau, share=0.5, weight=weight) > 1.0 for rate in rates)
    return float(next((rate for rate, does in zip(rates, grows, strict=True) if does), rates[-1]))


@pytest.mark.parametrize("n_workers", [4, 8])
@pytest.mark.parametrize("tau", [1, 2, 4, 10])
def test_every_tau_bears_nearly_what_one_worker_bears(n_workers: int, tau: int) -> None:
    assert largest_rate(n_workers, tau) == pytest.approx(3.8, rel=0.12)


def test_fewer_workers_bound_the_factor_at_once_and_more_workers_raise_the_bound_slowly() -> None:
    scale = PresentRateScale(RateScale(5.0, 0, 0, "", of_workers=(2.0, 3.0, 4.0, 5.0)))
    factors = []
    # 50 updates of each of 4 workers are 200 minibatches; 40 of them raise the bound by a fifth of the run's factor.
    for clock, live_workers in [(0, 4), (100, 1), (200, 4), (240, 4), (360, 4), (400, 3), (500, 0)]:
        scale.see(clock, live_workers)
        factors.append(scale.at(clock))
    assert factors == pytest.approx([5.0, 2.0, 4.5, 5.0, 5.0, 4.0, 4.0])


def test_the_bound_never_raises_the_runs_factor() -> None:
    scale = PresentRateScale(RateScale(4.0, 100, 0, "", of_workers=(5.0, 9.0)))
    scale.see(0, 2)
    assert [scale.at(clock) for clock in (0, 50, 100)] == [1.0, 2.5, 4.0]


def test_a_limit_below_the_solvers_rate_follows_the_present_workers() -> None:
    scale = PresentRateScale(RateScale(1 / 4, 0, 0, "", of_workers=(1.0, 1 / 2, 1 / 3, 1 / 4)))
    factors = []
    for clock, live_workers in [(0, 1), (10, 4), (20, 2), (1000, 2)]:  # the limit falls at once and rises slowly
        scale.see(clock, live_workers)
        factors.append(scale.at(clock))
    assert factors == pytest.approx([1.0, 1 / 4, 1 / 4 + 10 / 4 / 100, 1 / 2])


def test_a_factor_of_the_user_stays_for_any_number_of_workers() -> None:
    scale = PresentRateScale(scale_plan(3.0, n_workers=4))
    scale.see(10, 1)
    assert scale.at(10) == 3.0


@pytest.mark.parametrize(("factor", "warmup", "cost"), [(4.0, 500, 188), (10.0, 2_000, 900)])
def test_the_reason_has_the_cost_of_the_warm_up(factor: float, warmup: int, cost: int) -> None:
    """By the sum of the factors: of minibatches that have the whole factor, so many are missing."""
    scale = scale_plan(progress=0.1, factor=factor, n_workers=8, origin=50, max_iter=50 + 10_000)
    assert (scale.target, scale.warmup) == (factor, warmup)
    missing = 10_000 - sum(scale.at(50 + step) for step in range(10_000)) / factor
    assert missing == pytest.approx(cost, abs=1)
    assert f"over {warmup} minibatches, at the cost of the progress of {cost}" in scale.reason
