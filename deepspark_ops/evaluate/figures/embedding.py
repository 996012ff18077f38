"""Figures of vectors, compared by distance: verification of pairs, and nearest neighbours by class.

Verification predicts "equal" for a pair whose distance is at most a threshold. At the equal error rate, the share of
accepted different pairs equals the share of rejected equal pairs. The rate is interpolated linearly between two points
of the ROC curve. The best accuracy is the accuracy of the best threshold on the same pairs: slightly optimistic for new
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.histogram import Histogram, HistogramSum
from deepspark_ops.evaluate.figures.ranking import Ranked, RankingSum, rank_counts
from deepspark_ops.evaluate.figures.regression import ResidualHistogram, refuse_not_finite, shown_histogram
from deepspark_ops.evaluate.figures.threshold_counts import MOST_EXACT
from deepspark_ops.ingest.selection.row_hash import mixed

MAX_NEIGHBOURS = 2_000
"""Samples among which nearest neighbours are looked for; of more, so many are taken by a hash of their position."""
_BLOCK_ROWS = 256
_HISTOGRAM_BOXES = 2048


@dataclass(frozen=True)
class PairDistances:
    """Distances of pairs, counted; both kinds of pairs have the same bars.

    Attributes:
        same: Of pairs that belong together.
        other: Of the other pairs.
    """

    same: ResidualHistogram
    other: ResidualHistogram


@dataclass(frozen=True)
class Verification:
    """Figures of pairs. A figure of equal and different pairs is None if a kind is missing.

    Attributes:
        n_pairs: Pairs that count.
        n_same: Pairs that belong together.
        ranked: ROC curve and area; a pair that belongs together is a positive, its score the distance, negated.
        best_accuracy: Share of right answers at the best threshold.
        best_threshold: The largest distance that is taken for equal there; None if none is.
        equal_error_rate: In [0, 1].
        distances: Of the pairs, counted; None in files of earlier versions.
    """

    n_pairs: int
    n_same: int
    ranked: Ranked
    best_accuracy: float
    best_threshold: float | None
    equal_error_rate: float | None
    distances: PairDistances | None = None


class VerificationSum:
    """Sums pairs over batches. Not thread-safe.

    Example:
        >>> total = VerificationSum()
        >>> total.add(np.array([0.1, 0.4, 0.3, 0.9]), np.array([True, True, False, False]))
        >>> result = total.result()
        >>> result.best_accuracy, result.best_threshold, result.equal_error_rate
        (0.75, 0.1, 0.5)
    """

    def __init__(self, *, most_exact: int = MOST_EXACT) -> None:
        """Start at nothing; ``most_exact`` as for ``ThresholdSum``."""
        self._ranking = RankingSum(1, is_probability=False, most_exact=most_exact)
        self._distances = HistogramSum(most=_HISTOGRAM_BOXES)
        self._same_distances = HistogramSum(most=_HISTOGRAM_BOXES)

    def add(self, distances: npt.NDArray[np.floating], is_same: npt.NDArray[np.bool_], *, start: int = 0) -> None:
        """Count a batch: distances (n,), whether two belong together (n,), position of the first pair.

        Raises:
            DataError: A distance is not finite.
        """
        refuse_not_finite(distances, "the distance", "the weights diverged, score an earlier snapshot", start)
        same = np.asarray(is_same, np.bool_)
        self._ranking.add(-np.asarray(distances, np.float64)[:, None], same[:, None])
        rounded = np.asarray(distances, np.float32)[:, None]  # the rows of the samples have float32
        self._distances.add(rounded)
        self._same_distances.add(rounded[same])

    def merge(self, other: VerificationSum) -> None:
        """Add the counts of another sum with the same options."""
        self._ranking.merge(other._ranking)
        self._distances.merge(other._distances)
        self._same_distances.merge(other._same_distances)

    def result(self) -> Verification:
        """Return the figures.

        Raises:
            DataError: There was no pair.
        """
        counts = self._ranking.thresholds()
        n_same, n_other = int(counts.positives.sum()), int(counts.negatives.sum())
        if not n_same + n_other:
            msg = "no pair to verify"
            raise DataError(msg)
        hits = np.concatenate([[0], np.cumsum(counts.positives)])
        alarms = np.concatenate([[0], np.cumsum(counts.negatives)])
        right = hits + (n_other - alarms)
        best = int(right.argmax())
        all_distances = shown_histogram(self._distances)
        same_distances = _in_bars(self._same_distances.result(), all_distances)
        return Verification(
            n_pairs=n_same + n_other,
            n_same=n_same,
            ranked=rank_counts(counts),
            best_accuracy=int(right[best]) / (n_same + n_other),
            best_threshold=-float(counts.thresholds[best - 1]) if best else None,
            equal_error_rate=_equal_error_rate(alarms / n_other, hits / n_same) if n_same and n_other else None,
            distances=PairDistances(same_distances, _without(all_distances, same_distances)),
        )


def _in_bars(histogram: Histogram, bars: ResidualHistogram) -> ResidualHistogram:
    """Return the counts of a histogram in other bars, whose width is a multiple of the histogram's width."""
    starts = histogram.low[0] + histogram.width * np.arange(len(histogram.counts))
    n_bars = len(bars.counts)
    positions = np.floor(starts / bars.width) - bars.low / bars.width  # exact: all edges are multiples of powers of two
    counts = np.bincount(
        np.clip(positions, -1, n_bars).astype(np.int64) + 1, weights=histogram.counts, minlength=n_bars + 2
    )
    below, *inside, above = (int(count) for count in counts)
    return ResidualHistogram(bars.low, bars.width, tuple(inside), below, above)


def _without(bars: ResidualHistogram, part: ResidualHistogram) -> ResidualHistogram:
    counts = tuple(count - of_part for count, of_part in zip(bars.counts, part.counts, strict=True))
    return ResidualHistogram(bars.low, bars.width, counts, bars.below - part.below, bars.above - part.above)


def _equal_error_rate(alarm_rate: npt.NDArray[np.float64], hit_rate: npt.NDArray[np.float64]) -> float:
    """Return the rate where false alarms and misses are equal; both arrays ascend from 0 to 1."""
    gap = alarm_rate - (1.0 - hit_rate)  # ascends from -1 to 1
    upper = int(np.searchsorted(gap, 0.0, side="left"))
    lower = upper - 1
    share = -gap[lower] / (gap[upper] - gap[lower])
    return float(alarm_rate[lower] + share * (alarm_rate[upper] - alarm_rate[lower]))


@dataclass(frozen=True)
class Neighbours:
    """Whether the nearest vectors are of the same class.

    Attributes:
        n_samples: Samples read.
        n_compared: Samples that were compared with each other, at most ``MAX_NEIGHBOURS``.
        n_alone: Of them, samples without another of their class; they cannot be found and do not count.
        recall_at_1: Share of the others whose nearest neighbour is of their class; None without any.
        recall_at_5: Share with one of their class among the nearest five.
    """

    n_samples: int
    n_compared: int
    n_alone: int
    recall_at_1: float | None
    recall_at_5: float | None


class NeighbourSum:
    """Keeps a bounded sample of vectors. Not thread-safe.

    A hash of the position decides alone whether a vector stays, so batches and processes do not matter.
    """

    def __init__(self, *, most: int = MAX_NEIGHBOURS) -> None:
        """Start at nothing; ``most``: number of vectors to keep."""
        self._most = most
        self._n_samples = 0
        self._indices = np.zeros(0, np.int64)
        self._vectors: npt.NDArray[np.float32] | None = None
        self._labels = np.zeros(0, np.int64)

    def add(self, vectors: npt.NDArray[np.floating], labels: npt.NDArray[np.generic], *, start: int) -> None:
        """See a batch: vectors (n, width), classes (n,) as whole numbers, position of the first sample.

        Raises:
            DataError: A vector is not finite.
        """
        refuse_not_finite(vectors, "the net's vector", "the weights diverged, score an earlier snapshot", start)
        self._n_samples += len(vectors)
        self._keep(start + np.arange(len(vectors), dtype=np.int64), vectors.astype(np.float32), labels.astype(np.int64))

    def merge(self, other: NeighbourSum) -> None:
        """Take the vectors of another sum with the same options."""
        self._n_samples += other._n_samples
        if other._vectors is not None:
            self._keep(other._indices, other._vectors, other._labels)

    def result(self) -> Neighbours:
        """Compare all kept vectors by Euclidean distance; at equal distance the earlier vector is nearer."""
        _, ranks = self.ranks()
        together = ranks[ranks >= 0]
        return Neighbours(
            n_samples=self._n_samples,
            n_compared=len(ranks),
            n_alone=int(np.count_nonzero(ranks < 0)),
            recall_at_1=float(np.mean(together < 1)) if len(together) else None,
            recall_at_5=float(np.mean(together < 5)) if len(together) else None,
        )

    def ranks(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return each kept vector's position and rank: the number of nearer vectors of other classes.

        Returns:
            Positions, ascending, and numbers, -1 for a sample without another of its class.
        """
        if self._vectors is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        order = np.argsort(self._indices)
        vectors, labels = self._vectors[order].astype(np.float64), self._labels[order]
        blocks = [_ranks_of_class(vectors, labels, start) for start in range(0, len(vectors), _BLOCK_ROWS)]
        return self._indices[order], np.concatenate(blocks)

    def _keep(
        self, indices: npt.NDArray[np.int64], vectors: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]
    ) -> None:
        if self._vectors is not None:
            indices = np.concatenate([self._indices, indices])
            vectors = np.concatenate([self._vectors, vectors])
            labels = np.concatenate([self._labels, labels])
        if len(indices) > self._most:
            order = np.lexsort((indices, mixed(indices.astype(np.uint64))))[: self._most]
            indices, vectors, labels = indices[order], vectors[order], labels[order]
        self._indices, self._vectors, self._labels = indices, vectors, labels


def _ranks_of_class(
    vectors: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], start: int
) -> npt.NDArray[np.int64]:
    """Return, per row of a block, the number of other classes' vectors before the first of the class; -1: alone."""
    rows = np.arange(start, min(start + _BLOCK_ROWS, len(vectors)))
    block = vectors[rows]
    squares = (vectors * vectors).sum(axis=1)
    distances = squares[None, :] + squares[rows][:, None] - 2.0 * block @ vectors.T
    distances[np.arange(len(rows)), rows] = np.inf
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :-1]  # without the sample itself, which is last
    is_same = labels[nearest] == labels[rows][:, None]
    return np.where(is_same.any(axis=1), is_same.argmax(axis=1), -1) if is_same.shape[1] else np.full(len(rows), -1)
