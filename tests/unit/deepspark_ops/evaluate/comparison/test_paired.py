import numpy as np
import pytest
from scipy import stats

from deepspark_ops.evaluate.comparison import paired
from deepspark_ops.evaluate.comparison.paired import (
    compare_losses,
    compare_right,
    mcnemar_p_value,
    two_sided_p_value,
)
from tests.reference.slow_paired import (
    coverage_of_interval,
    listed_bootstrap_means,
    listed_bootstrap_p,
    listed_mcnemar_p,
)


def right_of(n_gained, n_lost, n):
    candidate, production = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    candidate[:n_gained] = True
    production[n_gained : n_gained + n_lost] = True
    both = slice(n_gained + n_lost, (n_gained + n_lost + n) // 2)
    candidate[both] = production[both] = True
    return candidate, production


@pytest.mark.parametrize("n_gained", range(7))
@pytest.mark.parametrize("n_lost", range(7))
def test_mcnemar_equals_a_list_of_all_outcomes(n_gained, n_lost):
    assert mcnemar_p_value(n_gained, n_lost) == listed_mcnemar_p(n_gained, n_lost)


@pytest.mark.parametrize(("n_gained", "n_lost"), [(60, 40), (40, 60), (500, 431), (2100, 1900), (0, 50), (50, 0)])
def test_mcnemar_equals_scipys_binomial_test(n_gained, n_lost):
    expected = stats.binomtest(n_gained, n_gained + n_lost, 0.5, alternative="greater").pvalue
    assert mcnemar_p_value(n_gained, n_lost) == pytest.approx(expected, rel=1e-9)  # scipy's own rounding


@pytest.mark.parametrize(("n_first", "n_second"), [(0, 0), (3, 3), (4, 3), (10, 2), (2, 10), (60, 40), (0, 50)])
def test_two_sided_equals_scipys_binomial_test(n_first, n_second):
    n = n_first + n_second
    expected = stats.binomtest(n_first, n, 0.5, alternative="two-sided").pvalue if n else 1.0
    assert two_sided_p_value(n_first, n_second) == pytest.approx(expected, rel=1e-9)


def test_what_both_get_right_or_wrong_says_nothing():
    few = compare_right(*right_of(9, 2, 20), level=0.9)
    of_many = compare_right(*right_of(9, 2, 2000), level=0.9)
    assert few.p_value == of_many.p_value == mcnemar_p_value(9, 2)
    assert (few.value, of_many.value) == (7 / 20, 7 / 2000)


def test_interval_by_hand():
    # Bonett and Price (2012): (gained + 1) / (n + 2) = 0.1, (lost + 1) / (n + 2) = 0.05, n + 2 = 100, z = 1.644854.
    gain = compare_right(*right_of(9, 4, 98), level=0.9)
    half = 1.644854 * ((0.15 - 0.05**2) / 100) ** 0.5
    assert gain.interval == pytest.approx((0.05 - half, 0.05 + half), abs=1e-7)


@pytest.mark.parametrize(("gained", "lost"), [(0.1, 0.1), (0.05, 0.02), (0.3, 0.1), (0.02, 0.0)])
def test_interval_covers_the_truth_at_its_level(gained, lost):
    def interval(n_gained, n_lost, n):
        return compare_right(*right_of(n_gained, n_lost, n), level=0.9).interval

    # The paper's figures stay within 2 points of the level but for very rare discordance, where it is wider.
    assert coverage_of_interval(interval, gained, lost, 40) > 0.88


def test_bootstrap_equals_all_resamples_of_a_small_set():
    gains = [0.4, -0.3, 0.2, 0.25, -0.1, 0.02]
    comparison = compare_losses(np.zeros(6), np.array(gains), level=0.8)
    means = listed_bootstrap_means(gains)
    # 10,000 draws: the standard error of a share is below 0.005.
    assert comparison.p_value == pytest.approx(listed_bootstrap_p(gains), abs=0.02)
    assert comparison.value == pytest.approx(sum(gains) / 6)
    assert comparison.interval == pytest.approx((means[len(means) // 10], means[len(means) * 9 // 10]), abs=0.01)


def test_bootstrap_gives_the_same_answer_again_and_never_says_impossible():
    losses = np.random.default_rng(3).random((2, 5_000))
    assert compare_losses(*losses, level=0.9) == compare_losses(*losses, level=0.9)
    sure = compare_losses(np.zeros(10), np.ones(10), level=0.9)
    assert (sure.value, sure.p_value) == (1.0, 1 / 10_001)
    assert compare_losses(np.ones(10), np.zeros(10), level=0.9).p_value == 1.0


def test_many_samples_get_fewer_resamples(monkeypatch):
    monkeypatch.setattr(paired, "_DRAWS", 30_000)
    assert compare_losses(np.zeros(20), np.ones(20), level=0.9).p_value == 1 / 1_501
    assert compare_losses(np.zeros(2_000), np.ones(2_000), level=0.9).p_value == 1 / 1_001  # no fewer than 1,000
