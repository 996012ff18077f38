"""The factor on base_lr: its target, its warm-up and the reason that is logged."""

from __future__ import annotations

import math

import pytest

from deepspark_ops.train.worker.rate_scale import plan_rate_scale


def plan(setting="auto", *, progress=1 / 3, limit=math.inf, n_workers=2, origin=0, max_iter=1000):
    return plan_rate_scale(
        setting, progress_per_step=progress, rate_limit=limit, n_workers=n_workers, origin=origin, max_iter=max_iter
    )


def test_one_worker_is_exactly_one() -> None:
    scale = plan(progress=1.0, n_workers=1)
    assert [scale.at(clock) for clock in (0, 1, 500, 999)] == [1.0] * 4


def test_auto_inverts_the_progress_after_a_linear_warm_up() -> None:
    scale = plan()
    assert scale.at(0) == 1.0
    assert scale.at(50) == pytest.approx(2.0)  # halfway through 10 % of 1000
    assert scale.at(100) == scale.at(900) == pytest.approx(3.0)
    assert "warm-up from 1 over 100 minibatches" in scale.reason


def test_auto_is_capped_and_says_so() -> None:
    scale = plan(progress=1 / 9, limit=4.0, n_workers=8)
    assert scale.at(10_000) == 4.0
    assert "at most 4 of 9 by the strategy's limit" in scale.reason


@pytest.mark.parametrize(("max_iter", "warmup"), [(5_000, 2_000), (2_000, 800), (100_000, 2_000), (600, 400)])
def test_a_factor_above_4_warms_up_for_longer(max_iter: int, warmup: int) -> None:
    scale = plan(progress=1 / 9, limit=8.0, n_workers=8, max_iter=max_iter)
    assert (scale.target, scale.warmup) == (8.0, warmup)
    assert plan(progress=1 / 9, limit=4.0, n_workers=8, max_iter=100_000).warmup == 500


def test_auto_keeps_to_the_strategys_limit() -> None:
    assert plan(progress=1.0, limit=1.0).at(900) == 1.0
    below = plan(progress=1.0, limit=1 / 3, n_workers=4)
    assert [below.at(clock) for clock in (0, 50, 999)] == [1 / 3] * 3  # no warm-up downwards
    assert "rate_scale 0.333: steps of one of 4 workers" in below.reason
    assert plan(2.0, limit=1 / 3).at(0) == 2.0  # what the user gives is taken


def test_warm_up_is_limited_and_counts_from_the_origin() -> None:
    scale = plan(origin=10_000, max_iter=100_000)
    assert scale.warmup == 500
    assert scale.at(10_000) == 1.0
    assert scale.at(10_250) == pytest.approx(2.0)


def test_a_short_run_warms_up_no_faster_and_ends_at_a_smaller_factor() -> None:
    scale = plan(max_iter=20)
    assert (scale.warmup, scale.target) == (100, 3.0)
    assert scale.at(20) == pytest.approx(1.4)
    assert scale.reason.endswith("warm-up from 1 over 100 minibatches, of which this run has 20: it ends at 1.4")
    assert plan(progress=1 / 5, n_workers=4, max_iter=20).warmup == 200


def test_none_and_a_number_are_taken_as_given() -> None:
    assert plan("none").at(0) == plan("none").at(999) == 1.0
    assert plan(2.5).at(0) == plan(2.5).at(999) == 2.5
