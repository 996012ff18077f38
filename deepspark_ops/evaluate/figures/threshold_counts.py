"""Counts of positives and negatives per score, for ROC and precision-recall curves.

Up to ``MOST_EXACT`` scores every score is stored, and the figures are exact. Beyond, positives and negatives are
counted in bins of ascending scores, so memory does not grow with the samples. Scores in the same bin then count as
equal, and the figures have error bounds. The number of scores alone decides between both ways, not batches or
processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError

Floats = npt.NDArray[np.floating]
Counts = npt.NDArray[np.int64]

MOST_EXACT = 1 << 22
"""Scores that are kept as they are, over all classes; 36 MiB."""
MOST_BINS = 1 << 16
"""Bins of a class; fewer where there are many classes, so that all have at most ``_ALL_BINS``."""
_ALL_BINS = 1 << 21
_MIN_BINS = 1 << 10
_SMALLEST_SHARE = np.float32(2.0**-32)
"""Probabilities nearer to 0 or 1 than this count as equal, in bins."""
_LOWEST_KEY = int(_SMALLEST_SHARE.view(np.uint32))
_HALF_KEY = int(np.float32(0.5).view(np.uint32))
_SHARE_KEYS = 2 * (_HALF_KEY - _LOWEST_KEY) + 1


@dataclass(frozen=True)
class ThresholdCounts:
    """Counts of a class for distinct scores, or for bins of scores, with a sample, descending.

    Attributes:
        thresholds: (n,) float64, the score, or the lowest one that falls into the bin.
        positives: (n,) int64, samples of the class with that score.
        negatives: (n,) int64, other samples with it.
        is_exact: Whether these are scores, not bins.
    """

    thresholds: npt.NDArray[np.float64]
    positives: Counts
    negatives: Counts
    is_exact: bool


class ThresholdSum:
    """Counts scores of several classes. Not thread-safe.

    Example:
        >>> total = ThresholdSum(1, is_probability=True)
        >>> total.add(np.array([[0.25], [0.75]]), np.array([[False], [True]]))
        >>> counts = total.result(0)
        >>> counts.thresholds.tolist(), counts.positives.tolist(), counts.negatives.tolist()
        ([0.75, 0.25], [1, 0], [0, 1])
    """

    def __init__(self, n_classes: int, *, is_probability: bool, most_exact: int = MOST_EXACT) -> None:
        """Start at nothing; of more than ``most_exact`` scores, bins are counted.

        Scores are probabilities in [0, 1], or any finite numbers in the range of float32.
        """
        self._n_classes = n_classes
        self._is_probability = is_probability
        self._most_exact = most_exact
        keys = _SHARE_KEYS if is_probability else 1 << 32
        target_bins = min(MOST_BINS, max(_MIN_BINS, _ALL_BINS // n_classes))
        self._shift = max(0, (keys - 1).bit_length() - (target_bins.bit_length() - 1))
        self._n_bins = ((keys - 1) >> self._shift) + 1
        self._kept: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]] = []
        self._n_kept = 0
        self._bins: Counts | None = None  # (n_classes, n_bins, 2): negatives, positives

    def add(self, scores: Floats, targets: npt.NDArray[np.bool_], *, start: int = 0) -> None:
        """Count a batch: scores (n, n_classes), larger for a surer positive, and which are positive (n, n_classes).

        Raises:
            DataError: A score is not finite, or is outside of [0, 1] where it should be a probability.
        """
        wide = np.array(scores, np.float64)
        bad = ~np.isfinite(wide)
        if self._is_probability:
            bad |= (wide < 0.0) | (wide > 1.0)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            allowed = "[0, 1], a probability" if self._is_probability else "any finite number"
            msg = f"sample {start + row}: the score of class {column} is {wide[row, column]}; allowed: {allowed}"
            raise DataError(msg)
        self._take(wide, np.array(targets, np.bool_))

    def merge(self, other: ThresholdSum) -> None:
        """Add the counts of another sum with the same options."""
        for scores, targets in other._kept:
            self._take(scores, targets)
        if other._bins is not None:
            self._to_bins()
            assert self._bins is not None
            self._bins += other._bins

    def result(self, at: int | None) -> ThresholdCounts:
        """Return the counts of class ``at``; None: of all pairs of a sample and a class together."""
        if self._bins is not None:
            return self._from_bins(self._bins.sum(axis=0) if at is None else self._bins[at])
        columns = slice(None) if at is None else slice(at, at + 1)
        scores = np.concatenate([np.zeros(0), *(scores[:, columns].ravel() for scores, _ in self._kept)])
        targets = np.concatenate([np.zeros(0, np.bool_), *(targets[:, columns].ravel() for _, targets in self._kept)])
        return _exact_counts(scores, targets)

    def _take(self, scores: npt.NDArray[np.float64], targets: npt.NDArray[np.bool_]) -> None:
        if self._bins is not None:
            self._count(scores, targets)
            return
        self._kept.append((scores, targets))
        self._n_kept += scores.size
        if self._n_kept > self._most_exact:
            self._to_bins()

    def _to_bins(self) -> None:
        if self._bins is None:
            self._bins = np.zeros((self._n_classes, self._n_bins, 2), np.int64)
            for scores, targets in self._kept:
                self._count(scores, targets)
            self._kept = []

    def _count(self, scores: npt.NDArray[np.float64], targets: npt.NDArray[np.bool_]) -> None:
        assert self._bins is not None
        keys = _keys_of_shares(scores) if self._is_probability else _keys_of_numbers(scores)
        bins = keys >> self._shift
        np.add.at(self._bins, (np.arange(self._n_classes), bins, targets.astype(np.intp)), 1)

    def _from_bins(self, bins: Counts) -> ThresholdCounts:
        filled = np.flatnonzero(bins.any(axis=1))[::-1]
        keys = filled << self._shift
        thresholds = _shares_of_keys(keys) if self._is_probability else _numbers_of_keys(keys)
        return ThresholdCounts(thresholds, bins[filled, 1], bins[filled, 0], is_exact=False)


def _exact_counts(scores: npt.NDArray[np.float64], targets: npt.NDArray[np.bool_]) -> ThresholdCounts:
    values, at = np.unique(scores, return_inverse=True)
    positives = np.bincount(at[targets], minlength=len(values)).astype(np.int64)
    negatives = np.bincount(at[~targets], minlength=len(values)).astype(np.int64)
    return ThresholdCounts(values[::-1], positives[::-1], negatives[::-1], is_exact=True)


def _keys_of_shares(shares: npt.NDArray[np.float64]) -> Counts:
    """Return whole numbers in the order of the probabilities, as fine near 1 as near 0.

    The bits of a positive float32, read as a whole number, ascend with the float32. For p above a half the number is
    the number of 1 - p, counted from the other end.
    """
    is_low = shares <= 0.5
    distances = np.maximum(np.where(is_low, shares, 1.0 - shares).astype(np.float32), _SMALLEST_SHARE)
    steps = distances.view(np.uint32).astype(np.int64) - _LOWEST_KEY
    return np.where(is_low, steps, _SHARE_KEYS - 1 - steps)


def _shares_of_keys(keys: Counts) -> npt.NDArray[np.float64]:
    is_low = keys <= _HALF_KEY - _LOWEST_KEY
    steps = np.where(is_low, keys, _SHARE_KEYS - 1 - keys) + _LOWEST_KEY
    distances = steps.astype(np.uint32).view(np.float32).astype(np.float64)
    shares = np.where(is_low, distances, 1.0 - distances)
    return np.where(keys == 0, 0.0, shares)


def _keys_of_numbers(numbers: npt.NDArray[np.float64]) -> Counts:
    """Return whole numbers in [0, 2^32) in the order of the numbers' float32."""
    with np.errstate(over="ignore"):
        bits = (numbers.astype(np.float32) + np.float32(0.0)).view(np.uint32).astype(np.int64)  # no -0
    return np.where(bits >> 31, 0xFFFFFFFF - bits, bits | 0x80000000)


def _numbers_of_keys(keys: Counts) -> npt.NDArray[np.float64]:
    bits = np.where(keys >> 31, keys & 0x7FFFFFFF, 0xFFFFFFFF - keys)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
