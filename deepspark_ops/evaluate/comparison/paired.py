"""Significance of the difference of two nets on the same samples: paired statistics in plain numpy.

All tests have one side: p is the probability of at least the observed gain if the two nets were equally good.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.comparison.grouped import SEED, Gain, Groups, compare_loss_groups, compare_right_groups

Right = npt.NDArray[np.bool_]
Losses = npt.NDArray[np.float64]

_MOST_RESAMPLES = 10_000
_FEWEST_RESAMPLES = 1_000
_DRAWS = 500_000_000
"""Samples drawn in all: about five seconds. Sets above 50,000 samples get fewer resamples."""
_DRAWN_AT_ONCE = 4_000_000


def mcnemar_p_value(n_gained: int, n_lost: int) -> float:
    """Return the p-value of McNemar's exact test in the direction of a gain.

    Samples with two right or two wrong answers say nothing. Each other sample goes either way with chance 1/2
    if the nets are equally good, so p is the chance of ``n_gained`` or more heads in ``n_gained + n_lost`` tosses:

        p = sum over k >= n_gained of binomial(n, k) / 2^n,    n = n_gained + n_lost

    McNemar, "Note on the sampling error of the difference between correlated proportions or percentages" (1947), in the
    exact form. The sum is of whole numbers, so p is exact for any count.

    Example:
        >>> mcnemar_p_value(1, 0), mcnemar_p_value(5, 0), mcnemar_p_value(0, 3)
        (0.5, 0.03125, 1.0)
    """
    n = n_gained + n_lost
    # P(X >= gained) = P(X <= lost): the sum with fewer terms is the same or its complement.
    fewer = min(n_lost, n_gained - 1)
    term = total = 1 if fewer >= 0 else 0
    for k in range(1, fewer + 1):
        term = term * (n - k + 1) // k
        total += term
    return total / (1 << n) if fewer == n_lost else ((1 << n) - total) / (1 << n)


def two_sided_p_value(n_first: int, n_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test, for two nets of equal standing.

    ``n_first`` and ``n_second`` count the samples that one of the nets alone gets right.

    Returns:
        The chance of such a difference or a larger one, in either direction, if both were equally good.

    Example:
        >>> two_sided_p_value(5, 0), two_sided_p_value(0, 5), two_sided_p_value(2, 2)
        (0.0625, 0.0625, 1.0)
    """
    return min(1.0, 2.0 * mcnemar_p_value(max(n_first, n_second), min(n_first, n_second)))


def compare_right(candidate: Right, production: Right, *, level: float, groups: Groups | None = None) -> Gain:
    """Compare two nets by the correctly classified samples.

    With the ``groups`` of samples that are not independent, the test and the interval are of groups.

    The interval is Bonett and Price's, "Adjusted Wald confidence interval for a difference of binomial proportions
    based on paired data" (2012). A pseudo-sample is added to either side: without a discordant sample the interval
    would have width 0.
    """
    if groups is not None:
        return compare_right_groups(candidate.astype(np.int64) - production, groups, level=level)
    n = len(candidate)
    gained = int(np.count_nonzero(candidate & ~production))
    lost = int(np.count_nonzero(production & ~candidate))
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = share_gained - share_lost
    half = _quantile(level) * math.sqrt((share_gained + share_lost - centre**2) / (n + 2))
    interval = (max(-1.0, centre - half), min(1.0, centre + half))
    return Gain((gained - lost) / n, interval, level, mcnemar_p_value(gained, lost))


def compare_losses(candidate: Losses, production: Losses, *, level: float, groups: Groups | None = None) -> Gain:
    """Compare two nets by the loss of each sample, (n_samples,) nats: paired bootstrap, percentile interval.

    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 8 and 13. p counts the resamples without a
    gain, plus 1, so p is never 0 (Davison and Hinkley, "Bootstrap Methods and their Application", 4.2).
    """
    gains = production - candidate
    if groups is not None:
        return compare_loss_groups(gains, groups, level=level)
    means = _resampled_means(gains)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    p_value = (int(np.count_nonzero(means <= 0)) + 1) / (len(means) + 1)
    return Gain(float(gains.mean()), (float(low), float(high)), level, p_value)


def p_text(value: float) -> str:
    """Return a p-value with the significant digits.

    Example:
        >>> p_text(0.5), p_text(0.0312), p_text(0.00195), p_text(3e-9)
        ('p = 0.50', 'p = 0.03', 'p = 0.002', 'p < 0.0001')
    """
    if value < 0.0001:
        return "p < 0.0001"
    return f"p = {value:.2f}" if value >= 0.01 else f"p = {value:.1g}"


def _resampled_means(values: Losses) -> Losses:
    n = len(values)
    n_resamples = min(_MOST_RESAMPLES, max(_FEWEST_RESAMPLES, _DRAWS // n))
    generator = np.random.default_rng(SEED)
    at_once = max(1, _DRAWN_AT_ONCE // n)
    return np.concatenate(
        [
            values[generator.integers(0, n, size=(min(at_once, n_resamples - start), n))].mean(axis=1)
            for start in range(0, n_resamples, at_once)
        ]
    )


def _quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
