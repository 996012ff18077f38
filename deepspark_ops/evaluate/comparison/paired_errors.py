"""Compares two nets without classes on the same samples: counts of smaller errors, largest differences."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.comparison.answers import groups_of, require_same_samples
from deepspark_ops.evaluate.comparison.grouped import group_interval, group_sums, two_sided_flipped_p_value
from deepspark_ops.evaluate.comparison.paired import two_sided_p_value
from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.scores import NORMAL_95

MOST_SHOWN: Final = 12


@dataclass(frozen=True)
class ErrorPair:
    """A sample.

    Attributes:
        index: Its position.
        first: The first net's own error of it.
        second: The second's.
    """

    index: int
    first: float
    second: float


@dataclass(frozen=True)
class PairedErrors:
    """How the errors of two nets differ.

    Attributes:
        n_samples: Samples that count.
        n_first: Samples of which the first net's error is the smaller one.
        n_second: Those of which the second's is.
        first: Mean of the first net's errors.
        second: Mean of the second's.
        interval: 95 % interval of ``second - first``, paired: by the normal distribution, or by exchanging groups; None
            of a single sample or too few groups.
        p: Two-sided p-value of the sign test: chance of such counts if either were as often the better one. Of groups
            the counts of each are one observation.
        first_better: Samples that the first answers much better, the largest difference first.
        second_better: Samples that the second answers much better, likewise.
        n_groups: Groups of samples; None where every sample is one observation.
    """

    n_samples: int
    n_first: int
    n_second: int
    first: float
    second: float
    interval: tuple[float, float] | None
    p: float
    first_better: tuple[ErrorPair, ...]
    second_better: tuple[ErrorPair, ...]
    n_groups: int | None = None


def paired_errors(
    first: ScoredSamples, second: ScoredSamples, *, pictured: Collection[int] = (), most: int = MOST_SHOWN
) -> PairedErrors:
    """Compare the errors of two nets sample by sample.

    Args:
        first: Of one net.
        second: Of the other, on the same samples in the same order.
        pictured: Samples of which there is a picture: if there are any, the largest differences are of these.
        most: Samples that are named of each side.

    Raises:
        DataError: They are of different samples, or of different tasks.
    """
    require_same_samples(second, first)
    mine, second_losses = first.answers.loss, second.answers.loss
    index = first.answers.index
    more = second_losses - mine
    n = len(more)
    n_first, n_second = int(np.count_nonzero(more > 0)), int(np.count_nonzero(more < 0))
    shown = np.isin(index, list(pictured)) if pictured else np.ones(n, np.bool_)

    def largest(differences: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[ErrorPair, ...]:
        usable = np.flatnonzero(shown & (differences > 0))
        order = usable[np.argsort(-differences[usable], kind="stable")][:most]
        return tuple(ErrorPair(int(index[at]), float(mine[at]), float(second_losses[at])) for at in order)

    groups = groups_of(first, second)
    if groups is None:
        interval, p = _interval(more), two_sided_p_value(n_first, n_second)
    else:
        interval = group_interval(more, groups, level=0.95)
        p = two_sided_flipped_p_value(group_sums(np.sign(more).astype(np.int64), groups))
    return PairedErrors(
        n_samples=n,
        n_first=n_first,
        n_second=n_second,
        first=float(mine.mean()),
        second=float(second_losses.mean()),
        interval=interval,
        p=p,
        first_better=largest(more),
        second_better=largest(-more),
        n_groups=None if groups is None else int(groups.max()) + 1,
    )


def _interval(differences: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    if len(differences) < 2:
        return None
    mean, half = float(differences.mean()), NORMAL_95 * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return mean - half, mean + half
