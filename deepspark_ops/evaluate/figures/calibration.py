"""Difference between a net's confidence and accuracy: the expected calibration error, with a table.

Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks" (2017): samples are put into M bins of equal
width by confidence, bin m being ((m - 1) / M, m / M]. Accuracy and confidence of a bin are the means over the bin's
samples (equations 1 and 2). ECE is the mean distance of both over the bins, weighted by samples (equation 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.exact_sum import ExactSums

N_BINS = 15


@dataclass(frozen=True)
class ReliabilityBin:
    """A bin of confidence.

    Attributes:
        low: Confidence above which it begins; the first one holds 0 too.
        high: Its largest confidence.
        count: Samples.
        confidence: Their mean confidence; None without a sample.
        accuracy: Share of them that are right; None without a sample.
    """

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Calibration:
    """What was found.

    Attributes:
        n_samples: Samples that count.
        ece: Expected calibration error, in [0, 1].
        largest_error: Largest distance of accuracy and confidence in a bin (Guo et al.'s MCE, equation 5).
        mean_confidence: Over all samples.
        accuracy: Likewise; larger than the confidence: the net is too modest.
        bins: Ascending.
    """

    n_samples: int
    ece: float
    largest_error: float
    mean_confidence: float
    accuracy: float
    bins: tuple[ReliabilityBin, ...]


def bins_of(confidences: npt.NDArray[np.float64], n_bins: int) -> npt.NDArray[np.int64]:
    """Return the bin of each confidence, (n,); an edge belongs to the bin below the edge.

    Example:
        >>> bins_of(np.array([0.0, 0.5, 0.75]), 2).tolist()
        [0, 0, 1]
    """
    return np.searchsorted(np.arange(1, n_bins) / n_bins, confidences, side="left").astype(np.int64)


class CalibrationSum:
    """Sums over batches. Not thread-safe.

    Example:
        >>> total = CalibrationSum(2)
        >>> total.add(np.array([0.75, 1.0, 0.25]), np.array([True, False, False]))
        >>> round(total.result().ece, 6)
        0.333333
    """

    def __init__(self, n_bins: int = N_BINS) -> None:
        """Start empty, with ``n_bins`` bins."""
        self._n_bins = n_bins
        self._counts = np.zeros((n_bins, 2), np.int64)
        self._confidences = ExactSums(n_bins)

    def add(self, confidences: npt.NDArray[np.floating], is_right: npt.NDArray[np.bool_], *, start: int = 0) -> None:
        """Count a batch: confidences (n,) of the answers, whether each is right (n,), position of the first sample.

        Raises:
            DataError: A confidence outside of [0, 1].
        """
        wide = np.asarray(confidences, np.float64)
        outside = np.flatnonzero(~((wide >= 0.0) & (wide <= 1.0)))
        if len(outside):
            msg = f"sample {start + outside[0]}: confidence {wide[outside[0]]}; allowed: [0, 1], a probability"
            raise DataError(msg)
        bins = bins_of(wide, self._n_bins)
        np.add.at(self._counts, (bins, np.asarray(is_right, np.intp)), 1)
        spread = np.zeros((len(wide), self._n_bins))
        spread[np.arange(len(wide)), bins] = wide
        self._confidences.add(spread)

    def merge(self, other: CalibrationSum) -> None:
        """Add the counts of another sum with the same number of bins."""
        self._counts += other._counts
        self._confidences.merge(other._confidences)

    def result(self) -> Calibration:
        """Return the figures.

        Raises:
            DataError: No sample counted.
        """
        counts = self._counts.sum(axis=1)
        n = int(counts.sum())
        if not n:
            msg = "no sample to measure calibration on"
            raise DataError(msg)
        right = self._counts[:, 1]
        sums = self._confidences.floats()
        exact_mean = sum(self._confidences.exact()) / n
        errors = [abs(int(right[at]) - sums[at]) for at in range(self._n_bins)]  # of a bin, times its samples
        return Calibration(
            n_samples=n,
            ece=sum(errors) / n,
            largest_error=max(error / int(count) for error, count in zip(errors, counts, strict=True) if count),
            mean_confidence=float(exact_mean),
            accuracy=int(right.sum()) / n,
            bins=tuple(
                ReliabilityBin(
                    low=at / self._n_bins,
                    high=(at + 1) / self._n_bins,
                    count=int(counts[at]),
                    confidence=sums[at] / int(counts[at]) if counts[at] else None,
                    accuracy=int(right[at]) / int(counts[at]) if counts[at] else None,
                )
                for at in range(self._n_bins)
            ),
        )
