"""Is a net better than another net where samples come in groups with related errors, such as a customer's rows?

A group counts as a single observation. If the two nets are equally good, both answers to a whole group may be
exchanged: the sum of a group's differences has either sign with chance 1/2. All tests have one side, as in
``paired.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Groups = npt.NDArray[np.int64]
"""(n_samples,) number of each sample's group, from 0, without gaps."""
Sums = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

SEED: Final = 20_260_101
"""Fixed, so that the same two evaluations always give the same decision."""
_LISTED_GROUPS: Final = 13
"""Of so few groups all 2^G exchanges are listed; of more some are drawn."""
_DRAWN: Final = 10_000
_DRAWN_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True)
class Gain:
    """How much better a candidate is than what is in production.

    Attributes:
        value: Mean gain per sample; positive is better: a share for accuracy, nats for loss.
        interval: Two-sided interval of ``value`` at ``level``; None where too few groups allow none.
        level: Share of intervals that hold the true gain.
        p_value: One-sided.
        n_groups: Groups of samples that were compared; None where samples are independent.
    """

    value: float
    interval: tuple[float, float] | None
    level: float
    p_value: float
    n_groups: int | None = None


def group_numbers(names: npt.NDArray[np.generic] | None) -> Groups | None:
    """Return the number of each sample's group; None without groups, or if every group has a single sample."""
    if names is None:
        return None
    group_names, numbers = np.unique(names, return_inverse=True)
    return None if len(group_names) == len(names) else numbers.astype(np.int64)


def flipped_p_value(sums: Sums) -> float:
    """Return the exact chance of a total of ``sum(sums)`` or more, if coins draw the signs.

    With sums of 1 and -1 this is McNemar's exact test; a group whose sum is 0 says nothing.

    Args:
        sums: (n_groups,) of whole differences, such as the candidate's right answers minus production's.

    Example:
        >>> flipped_p_value(np.array([1, 1, 1, 1, 1])), flipped_p_value(np.array([3, 2, -1]))
        (0.03125, 0.25)
    """
    sizes = np.abs(sums[sums != 0])
    reach = int(sizes.sum())
    # chances[reach + t]: of total t
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    spread = 0
    for size in np.sort(sizes).tolist():
        spread += size
        low, high = reach - spread, reach + spread + 1
        old = chances[low:high].copy()
        new = np.zeros_like(old)
        new[size:] += 0.5 * old[:-size]
        new[:-size] += 0.5 * old[size:]
        chances[low:high] = new
    return min(1.0, float(chances[reach + int(sums.sum()) :].sum()))


def two_sided_flipped_p_value(sums: Sums) -> float:
    """Return ``flipped_p_value`` in the direction of ``sums``, times two."""
    return min(1.0, 2 * flipped_p_value(sums if sums.sum() > 0 else -sums))


def group_sums(differences: npt.NDArray[np.integer], groups: Groups) -> Sums:
    """Return the sum of the differences of each group's samples, (n_groups,)."""
    return np.bincount(groups, differences).astype(np.int64)


def compare_right_groups(gains: Sums, groups: Groups, *, level: float) -> Gain:
    """Compare two nets by right answers; gains are 1 where the candidate alone is right, -1 for production, else 0."""
    interval = group_interval(gains, groups, level=level)
    p_value = flipped_p_value(group_sums(gains, groups))
    return Gain(float(gains.mean()), interval, level, p_value, int(groups.max()) + 1)


def compare_loss_groups(gains: Values, groups: Groups, *, level: float) -> Gain:
    """Compare two nets by losses; the gain of a sample is production's loss minus the candidate's."""
    means = _subset_means(gains, groups)
    p_value = (int(np.count_nonzero(means <= 0)) + 1) / (len(means) + 1)
    interval = _interval(means, level)
    return Gain(float(gains.mean()), interval, level, p_value, int(groups.max()) + 1)


def group_interval(gains: Values | Sums, groups: Groups, *, level: float) -> tuple[float, float] | None:
    """Return the interval of the mean gain: the values not rejected by an exchange of groups.

    A mean m is rejected if few subsets of groups have a mean below m: Hartigan, "Using subsample values as typical
    values" (1969). Each group is in a subset with chance 1/2; the empty subset counts as below every value.

    Returns:
        None if the groups are too few to reject any value.
    """
    return _interval(_subset_means(gains, groups), level)


def fewest_groups(level: float) -> int:
    """Return how many groups must all agree before p is at most ``1 - level``.

    Example:
        >>> fewest_groups(0.95), fewest_groups(0.5)
        (5, 1)
    """
    return max(1, math.ceil(-math.log2(1 - level) - 1e-9))


def _interval(means: Values, level: float) -> tuple[float, float] | None:
    outside = round((1 - level) / 2 * (len(means) + 1), 6)
    if outside < 1:
        return None
    ordered = np.sort(means)
    rank = int(outside) - 1
    return float(ordered[rank]), float(ordered[-1 - rank])


def _subset_means(values: Values | Sums, groups: Groups) -> Values:
    """Return the mean of the values in each subset of groups but the empty subset."""
    sums = np.stack([np.bincount(groups, values), np.bincount(groups).astype(np.float64)], axis=1)
    n_groups = len(sums)
    if n_groups <= _LISTED_GROUPS:
        codes = np.arange(1, 2**n_groups)
        return _means((codes[:, None] >> np.arange(n_groups)) & 1, sums)
    generator = np.random.default_rng(SEED)
    at_once = max(1, _DRAWN_AT_ONCE // n_groups)
    chosen = (
        generator.integers(0, 2, size=(min(at_once, _DRAWN - start), n_groups), dtype=np.int8)
        for start in range(0, _DRAWN, at_once)
    )
    return np.concatenate([_means(rows[rows.any(axis=1)], sums) for rows in chosen])


def _means(is_in: npt.NDArray[np.integer], sums: Values) -> Values:
    totals = is_in.astype(np.float64) @ sums
    means: Values = totals[:, 0] / totals[:, 1]
    return means
