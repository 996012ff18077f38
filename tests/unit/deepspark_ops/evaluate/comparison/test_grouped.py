"""Paired comparison of grouped samples: against listed signs and scipy, and its rates of false and true findings."""

import numpy as np
import pytest
from scipy import stats

from deepspark_ops.evaluate.comparison import grouped, paired
from deepspark_ops.evaluate.comparison.grouped import (
    compare_loss_groups,
    compare_right_groups,
    fewest_groups,
    flipped_p_value,
    group_interval,
    group_numbers,
    two_sided_flipped_p_value,
)
from deepspark_ops.evaluate.comparison.paired import compare_losses, compare_right, mcnemar_p_value
from tests.reference.slow_paired import listed_rejected_means

RNG = np.random.default_rng(29)
SUMS = [
    [1, 1, 1, 1],
    [3, 2, -1],
    [5, -5, 1],
    [-2, -1],
    [4, 0, 0, 2],
    [0, 0],
    *(RNG.integers(-6, 8, n).tolist() for n in range(1, 12)),
]


@pytest.mark.parametrize("sums", [sums for sums in SUMS if len(sums) > 1], ids=str)
def test_p_value_is_that_of_scipy(sums):
    expected = stats.permutation_test(
        (np.array(sums, float),), np.sum, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert flipped_p_value(np.array(sums)) == pytest.approx(expected.pvalue)
    gains, groups = np.array(sums, float), np.arange(len(sums))
    if len(sums) <= 11:
        assert compare_loss_groups(gains, groups, level=0.9).p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize(("gained", "lost"), [(5, 0), (12, 4), (40, 60), (0, 0), (700, 640)])
def test_groups_of_one_sample_are_mcnemars_test(gained, lost):
    sums = np.array([1] * gained + [-1] * lost + [0] * 7)
    assert flipped_p_value(sums) == pytest.approx(mcnemar_p_value(gained, lost))


def test_two_sided_p_value_takes_the_larger_side():
    sums = np.array([3, 1, 1, -1])
    assert two_sided_flipped_p_value(sums) == two_sided_flipped_p_value(-sums) == 2 * flipped_p_value(sums)
    assert two_sided_flipped_p_value(np.zeros(3, int)) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_interval_holds_the_means_that_listed_signs_do_not_reject(seed):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(8), rng.integers(1, 6, 8))
    gains = rng.normal(0.2, 1.0, len(groups))
    low, high = group_interval(gains, groups, level=0.9)
    sums, counts = np.bincount(groups, gains), np.bincount(groups)
    for mean, is_rejected in ((low - 1e-9, True), (low + 1e-9, False), (high - 1e-9, False), (high + 1e-9, True)):
        assert listed_rejected_means(sums, counts, mean, tail=0.05) == is_rejected


def test_too_few_groups_have_no_interval():
    gains, groups = np.arange(8.0), np.repeat(np.arange(4), 2)
    assert group_interval(gains, groups, level=0.9) is None
    assert fewest_groups(0.95) == 5
    assert group_interval(np.arange(10.0), np.repeat(np.arange(5), 2), level=0.9) is not None


def test_groups_of_single_samples_count_as_no_groups():
    assert group_numbers(np.array([7, 9, 8], np.uint64)) is None
    assert group_numbers(None) is None
    assert group_numbers(np.array([7, 9, 7], np.uint64)).tolist() == [0, 1, 0]


N_TRIALS = 400
FALSE_SHARE = 0.05
MOST_FALSE = FALSE_SHARE * N_TRIALS + 3.5 * np.sqrt(N_TRIALS * FALSE_SHARE * (1 - FALSE_SHARE))
"""Of a test that is wrong in 5 % of cases more are found once in 4,000 seeds."""


def trial(rng, *, n_groups, size, shared, kind, gain=0.0):
    """Return (right or loss of each net, groups); the errors of a group go together by ``shared``."""
    groups = np.repeat(np.arange(n_groups), size)
    if kind == "right":
        spread = (1 - shared) / shared if shared else np.inf
        shares = [0.8 + gain, 0.8]
        drawn = [rng.beta(p * spread, (1 - p) * spread, n_groups) if shared else np.full(n_groups, p) for p in shares]
        return [rng.random(len(groups)) < share[groups] for share in drawn], groups
    scales = [rng.gamma(1 / shared, shared, n_groups) if shared else np.ones(n_groups) for _ in range(2)]
    losses = [rng.exponential(scale[groups]) for scale in scales]
    return [losses[0] * (1 - gain), losses[1]], groups


def share_promoted(kind, *, are_grouped, **options):
    rng = np.random.default_rng(1)
    compare = {"right": compare_right, "loss": compare_losses}[kind]
    count = 0
    for _ in range(N_TRIALS):
        (mine, production), groups = trial(rng, kind=kind, **options)
        comparison = compare(mine, production, level=0.9, groups=groups if are_grouped else None)
        count += comparison.value > 0 and comparison.p_value <= FALSE_SHARE
    return count


@pytest.fixture
def few_draws(monkeypatch):
    """Draw fewer subsets and resamples: the rates are the same, and the test takes seconds."""
    monkeypatch.setattr(grouped, "_DRAWN", 999)
    monkeypatch.setattr(paired, "_MOST_RESAMPLES", 199)


@pytest.mark.parametrize(
    ("kind", "n_groups", "size", "shared"),
    [
        (kind, *options)
        for kind in ("right", "loss")
        for options in ((7, 2, 0), (7, 20, 0.9), (60, 2, 0.9), (60, 20, 0.3))
    ],
)
def test_equally_good_nets_are_told_apart_in_one_case_of_twenty(few_draws, kind, n_groups, size, shared):
    count = share_promoted(kind, are_grouped=True, n_groups=n_groups, size=size, shared=shared)
    assert count <= MOST_FALSE, f"{100 * count / N_TRIALS:.1f} %"


@pytest.mark.parametrize("kind", ["right", "loss"])
def test_without_groups_the_same_nets_are_told_apart_far_more_often(few_draws, kind):
    """So the test above can fail."""
    assert share_promoted(kind, are_grouped=False, n_groups=60, size=20, shared=0.9) > 2 * MOST_FALSE


@pytest.mark.parametrize(("kind", "gain"), [("right", 0.04), ("loss", 0.09)])
def test_groups_of_independent_samples_cost_little_power(few_draws, kind, gain):
    options = {"n_groups": 60, "size": 20, "shared": 0, "gain": gain}
    grouped, by_sample = (share_promoted(kind, are_grouped=are_grouped, **options) for are_grouped in (True, False))
    assert 0.5 * N_TRIALS < by_sample < 0.95 * N_TRIALS
    assert grouped > 0.9 * by_sample


def test_a_gain_in_every_group_is_found_and_one_in_a_large_group_is_not():
    groups = np.repeat(np.arange(12), 10)
    everywhere = np.tile([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 12)
    assert compare_right_groups(everywhere, groups, level=0.9).p_value == 2**-12
    in_one = np.where(groups == 3, 1, 0)
    comparison = compare_right_groups(in_one, groups, level=0.9)
    assert (comparison.p_value, comparison.n_groups) == (0.5, 12)
    assert comparison.interval[0] <= 0
