"""Paired comparison by the plainest means: every outcome of the coins is listed; nothing of the package is used."""

from itertools import product


def listed_mcnemar_p(n_gained, n_lost):
    """Toss n coins in all 2^n ways; the share with at least n_gained heads."""
    n = n_gained + n_lost
    outcomes = list(product((0, 1), repeat=n))
    return sum(sum(outcome) >= n_gained for outcome in outcomes) / len(outcomes)


def listed_bootstrap_p(gains):
    """All n^n resamples of the gains: the share whose mean is no gain."""
    resamples = list(product(gains, repeat=len(gains)))
    return sum(sum(resample) <= 0 for resample in resamples) / len(resamples)


def listed_bootstrap_means(gains):
    """The means of all n^n resamples, ascending."""
    return sorted(sum(resample) / len(gains) for resample in product(gains, repeat=len(gains)))


def coverage_of_interval(interval, share_gained, share_lost, n):
    """Chance that ``interval(gained, lost, n)`` holds the true difference, over all outcomes of n samples."""
    total = 0.0
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            low, high = interval(gained, lost, n)
            if low <= share_gained - share_lost <= high:
                total += _trinomial(gained, lost, n, share_gained, share_lost)
    return total


def _trinomial(gained, lost, n, share_gained, share_lost):
    value, share_unchanged = 1.0, 1 - share_gained - share_lost
    for k in range(gained):
        value *= (n - k) / (k + 1) * share_gained
    for k in range(lost):
        value *= (n - gained - k) / (k + 1) * share_lost
    return value * share_unchanged ** (n - gained - lost)


def listed_flipped_p(sums):
    """Give each sum either sign in all 2^n ways; return the share with at least the total of the real signs."""
    totals = [sum(values) for values in product(*((value, -value) for value in sums))]
    return sum(total >= sum(sums) for total in totals) / len(totals)


def listed_rejected_means(sums, counts, mean, tail):
    """Whether a mean gain is rejected, of groups with these sums and counts: by the signs of their distances."""
    rests = [value - mean * count for value, count in zip(sums, counts, strict=True)]
    return listed_flipped_p(rests) <= tail or listed_flipped_p([-residual for residual in rests]) <= tail
