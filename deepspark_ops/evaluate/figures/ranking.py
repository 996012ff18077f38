"""Ranking of positives above negatives by scores: ROC curve, ROC-AUC, precision-recall curve, average precision.

ROC-AUC is the share of pairs, a positive and a negative, with the higher score for the positive. Equal scores count a
half: Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic curve" (1982).
Average precision is a sum over distinct scores, descending: the precision at the score times the gain of recall,
without interpolation (Manning, Raghavan and Schuetze, "Introduction to information retrieval", 2008, section 8.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.figures.threshold_counts import MOST_EXACT, ThresholdCounts, ThresholdSum

MAX_CURVE_POINTS = 101

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Ranked:
    """Figures of a class against the rest. A figure of positives and negatives is None if either kind is missing.

    Attributes:
        positives: Samples of the class.
        negatives: All others.
        roc_auc: In [0, 1].
        roc_auc_within: The exact ROC-AUC is no further from ``roc_auc`` than this; 0 where scores were kept.
        average_precision: In [0, 1]; None without a positive.
        average_precision_within: Likewise.
        roc: (false positive rate, true positive rate), ascending, at most ``MAX_CURVE_POINTS``, from (0, 0) to (1, 1).
        precision_recall: (recall, precision), ascending in recall, at most as many.
    """

    positives: int
    negatives: int
    roc_auc: float | None
    roc_auc_within: float
    average_precision: float | None
    average_precision_within: float
    roc: Curve
    precision_recall: Curve


@dataclass(frozen=True)
class Ranking:
    """Of several classes.

    Attributes:
        classes: In label order; with curves those that are ranked worst, as many as were asked for.
        macro_roc_auc: Mean over the classes that have one; None if none has.
        macro_average_precision: Likewise; the usual mAP.
        micro: All pairs of a sample and a class, as one class.
    """

    classes: tuple[Ranked, ...]
    macro_roc_auc: float | None
    macro_average_precision: float | None
    micro: Ranked


class RankingSum:
    """Sums over batches. Not thread-safe.

    Example:
        >>> total = RankingSum(1)
        >>> total.add(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[False], [False], [True], [True]]))
        >>> ranked = total.result().classes[0]
        >>> ranked.roc_auc, round(ranked.average_precision, 4)
        (0.75, 0.8333)
    """

    def __init__(self, n_classes: int, *, is_probability: bool = True, most_exact: int = MOST_EXACT) -> None:
        """Start at nothing; the arguments are as for ``ThresholdSum``."""
        self._n_classes = n_classes
        self._counts = ThresholdSum(n_classes, is_probability=is_probability, most_exact=most_exact)

    def add(self, scores: npt.NDArray[np.floating], targets: npt.NDArray[np.bool_], *, start: int = 0) -> None:
        """Count a batch: scores (n, n_classes), positives (n, n_classes), position of the first sample.

        Raises:
            DataError: A score is not finite, or is no probability.
        """
        self._counts.add(scores, targets, start=start)

    def add_labels(self, scores: npt.NDArray[np.floating], labels: npt.NDArray[np.int64], *, start: int = 0) -> None:
        """Count a batch of samples with a single class each: labels (n,) in [0, n_classes)."""
        self.add(scores, labels[:, None] == np.arange(self._n_classes), start=start)

    def merge(self, other: RankingSum) -> None:
        """Add the counts of another sum with the same options."""
        self._counts.merge(other._counts)

    def thresholds(self) -> ThresholdCounts:
        """Return positives and negatives of the first class by score."""
        return self._counts.result(0)

    def result(self, *, n_curves: int = 20) -> Ranking:
        """Return the figures; curves of the ``n_curves`` classes with the smallest ROC-AUC, and of ``micro``."""
        class_curves = [rank_counts(self._counts.result(at)) for at in range(self._n_classes)]
        drawn = set(sorted(range(self._n_classes), key=lambda at: (class_curves[at].roc_auc or 0.0, at))[:n_curves])
        classes = tuple(
            curve if at in drawn else replace(curve, roc=(), precision_recall=())
            for at, curve in enumerate(class_curves)
        )
        return Ranking(
            classes=classes,
            macro_roc_auc=mean_of_numbers([ranked.roc_auc for ranked in classes]),
            macro_average_precision=mean_of_numbers([ranked.average_precision for ranked in classes]),
            micro=rank_counts(self._counts.result(None)),
        )


def rank_counts(counts: ThresholdCounts) -> Ranked:
    """Return the figures of a class."""
    hits, false_alarms = np.cumsum(counts.positives), np.cumsum(counts.negatives)
    positives, negatives = int(counts.positives.sum()), int(counts.negatives.sum())
    auc = auc_within = precision = precision_within = None
    if positives and negatives:
        # Twice the pairs in order, in whole numbers: those of a threshold before, and half of those at it.
        hits_above = hits - counts.positives
        doubled = sum((counts.negatives * (2 * hits_above + counts.positives)).tolist())
        auc = doubled / (2 * positives * negatives)
        tied = sum((counts.negatives * counts.positives).tolist())
        auc_within = tied / (2 * positives * negatives)
    if positives:
        precision = float(np.sum(counts.positives * (hits / (hits + false_alarms)))) / positives
        precision_within = _precision_within(counts, hits, false_alarms)
    is_whole = positives > 0 and negatives > 0
    rates = (false_alarms / max(negatives, 1), hits / max(positives, 1))
    recall = (hits / max(positives, 1), hits / np.maximum(hits + false_alarms, 1))
    return Ranked(
        positives=positives,
        negatives=negatives,
        roc_auc=auc,
        roc_auc_within=0.0 if counts.is_exact else auc_within or 0.0,
        average_precision=precision,
        average_precision_within=0.0 if counts.is_exact else precision_within or 0.0,
        roc=_thinned((0.0, *rates[0]), (0.0, *rates[1])) if is_whole else (),
        precision_recall=_thinned(*recall) if is_whole else (),
    )


def _precision_within(counts: ThresholdCounts, hits: npt.NDArray[np.int64], alarms: npt.NDArray[np.int64]) -> float:
    """Return bounds of the exact average precision: positives come first in each bin at best, last at worst.

    The i-th of p positives of a bin, after T hits and F false alarms, has precision (T + i) / (T + i + F) at best. At
    worst the bin's q negatives are added to F. Both grow with i.
    """
    hits_above = hits - counts.positives
    alarms_before = alarms - counts.negatives
    best = hits / np.maximum(hits + alarms_before, 1)
    worst = (hits_above + 1) / np.maximum(hits_above + 1 + alarms, 1)
    precision = hits / np.maximum(hits + alarms, 1)
    above = float(np.sum(counts.positives * (best - precision)))
    below = float(np.sum(counts.positives * np.maximum(precision - worst, 0.0)))
    return max(above, below) / float(hits[-1])


def _thinned(xs: Sequence[float] | npt.NDArray[np.float64], ys: Sequence[float] | npt.NDArray[np.float64]) -> Curve:
    """Return some points of a curve in the unit square, rounded: about equally far apart, with both ends."""
    x, y = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
    if len(x) > MAX_CURVE_POINTS:
        along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
        points = np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], MAX_CURVE_POINTS - 1)[1:-1]))
        points = np.unique(np.concatenate([[0], points, [len(x) - 1]]))
        x, y = x[points], y[points]
    return tuple((round(float(x_value), 5), round(float(other), 5)) for x_value, other in zip(x, y, strict=True))


def mean_of_numbers(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
