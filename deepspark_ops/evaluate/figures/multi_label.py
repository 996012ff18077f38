"""Several yes-or-no labels per sample: precision, recall, F1, subset accuracy, ranking of each label.

A label counts as predicted if the probability is above the threshold. Hamming loss is the share of wrong answers over
samples and labels. Subset accuracy is the share of samples whose labels are all right (Zhang and Zhou, "A review on
multi-label learning algorithms", 2014, section 2.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.calibration import Calibration, CalibrationSum
from deepspark_ops.evaluate.figures.ranking import Ranked, Ranking, RankingSum, mean_of_numbers
from deepspark_ops.evaluate.figures.threshold_counts import MOST_EXACT

THRESHOLD = 0.5
"""Above it a label counts as answered."""


@dataclass(frozen=True)
class Detection:
    """How well answers and truth agree. A share is None if the denominator is zero.

    Attributes:
        true_positives: There and answered.
        false_positives: Answered, not there.
        false_negatives: There, not answered.
        true_negatives: Neither.
        precision: Share of the answers that are true.
        recall: Share of the true ones that are answered.
        f1: Harmonic mean of both.
    """

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class LabelFigures:
    """One label.

    Attributes:
        label: Its number.
        name: Given by the caller, else the number.
        detection: At the threshold.
        ranked: At all thresholds.
    """

    label: int
    name: str
    detection: Detection
    ranked: Ranked


@dataclass(frozen=True)
class MultiLabel:
    """What was found.

    Attributes:
        n_samples: Samples with at least one label that counts.
        n_ignored: Pairs of a sample and a label that carry the ignored value.
        threshold: Above which a label counts as answered.
        subset_accuracy: Share of samples whose labels are all right.
        hamming_loss: Share of wrong pairs of a sample and a label.
        labels: In their order.
        micro: All pairs of a sample and a label together.
        macro_precision: Mean over the labels that have one; None if none has.
        macro_recall: Likewise.
        macro_f1: Likewise.
        ranking: ROC-AUC and average precision; its ``macro_average_precision`` is the mAP.
        calibration: Of the answer to each pair: probability p if it is yes, 1 - p if it is no.
    """

    n_samples: int
    n_ignored: int
    threshold: float
    subset_accuracy: float
    hamming_loss: float
    labels: tuple[LabelFigures, ...]
    micro: Detection
    macro_precision: float | None
    macro_recall: float | None
    macro_f1: float | None
    ranking: Ranking
    calibration: Calibration


class MultiLabelSum:
    """Sums over batches. Not thread-safe.

    Example:
        >>> total = MultiLabelSum(2)
        >>> total.add(np.array([[0.9, 0.2], [0.6, 0.7]]), np.array([[1, 0], [0, 1]]))
        >>> result = total.result()
        >>> result.subset_accuracy, result.hamming_loss, result.labels[0].detection.precision
        (0.5, 0.25, 0.5)
    """

    def __init__(self, n_labels: int, *, ignore_label: int | None = None) -> None:
        """Start at nothing; a label of the value ``ignore_label`` (Caffe's) does not count."""
        self._n_labels = n_labels
        self._ignore_label = ignore_label
        self._n_samples = 0
        self._n_ignored = 0
        self._n_all_right = 0
        self._counts = np.zeros((n_labels, 2, 2), np.int64)  # label, true, answered
        # A label each: with ignored pairs, the labels have different samples.
        self._rankings = [RankingSum(1, most_exact=max(1, MOST_EXACT // n_labels)) for _ in range(n_labels)]
        self._pooled = RankingSum(1)
        self._calibration = CalibrationSum()

    def add(self, probabilities: npt.NDArray[np.floating], labels: npt.NDArray[np.generic], *, start: int = 0) -> None:
        """Count a batch of shape (n, n_labels): probabilities, and labels of 0, 1 or the ignored value, of any dtype.

        Raises:
            DataError: A label is neither 0 nor 1, or a probability is none; says which sample.
        """
        ignored = np.zeros(labels.shape, np.bool_) if self._ignore_label is None else labels == self._ignore_label
        wrong = np.argwhere(~ignored & (labels != 0) & (labels != 1))
        if len(wrong):
            row, column = wrong[0]
            further = "" if self._ignore_label is None else f", and {self._ignore_label} for one that does not count"
            msg = f"sample {start + row}: label {column} is {labels[row, column]}; allowed: 0 and 1{further}"
            raise DataError(msg)
        counted = ~ignored
        truth = labels == 1
        wide = np.asarray(probabilities, np.float64)
        answered = wide > THRESHOLD
        for at, ranking in enumerate(self._rankings):
            rows = counted[:, at]
            ranking.add(wide[rows, at : at + 1], truth[rows, at : at + 1], start=start)
        self._pooled.add(wide[counted][:, None], truth[counted][:, None], start=start)
        confidence = np.where(answered, wide, 1.0 - wide)
        self._calibration.add(confidence[counted], (answered == truth)[counted], start=start)
        columns = np.broadcast_to(np.arange(self._n_labels), labels.shape)[counted]
        np.add.at(self._counts, (columns, truth[counted].astype(np.intp), answered[counted].astype(np.intp)), 1)
        has_any = counted.any(axis=1)
        self._n_samples += int(np.count_nonzero(has_any))
        self._n_ignored += int(np.count_nonzero(ignored))
        self._n_all_right += int(np.count_nonzero(has_any & ((answered == truth) | ignored).all(axis=1)))

    def merge(self, other: MultiLabelSum) -> None:
        """Add the counts of another sum with the same options."""
        self._n_samples += other._n_samples
        self._n_ignored += other._n_ignored
        self._n_all_right += other._n_all_right
        self._counts += other._counts
        for mine, other_ranking in zip(self._rankings, other._rankings, strict=True):
            mine.merge(other_ranking)
        self._pooled.merge(other._pooled)
        self._calibration.merge(other._calibration)

    def result(self, names: Sequence[str] = (), *, n_curves: int = 20) -> MultiLabel:
        """Return the figures; labels beyond ``names`` are called by number.

        Raises:
            DataError: No label of any sample counted.
        """
        if not self._n_samples:
            msg = f"no label to score: all are of ignore_label={self._ignore_label}"
            raise DataError(msg)
        detections = [_detection(table) for table in self._counts]
        ranked = [
            ranking.result(n_curves=1 if at < n_curves else 0).classes[0] for at, ranking in enumerate(self._rankings)
        ]
        micro = _detection(self._counts.sum(axis=0))
        n_pairs = int(self._counts.sum())
        return MultiLabel(
            n_samples=self._n_samples,
            n_ignored=self._n_ignored,
            threshold=THRESHOLD,
            subset_accuracy=self._n_all_right / self._n_samples,
            hamming_loss=(micro.false_positives + micro.false_negatives) / n_pairs,
            labels=tuple(
                LabelFigures(at, names[at] if at < len(names) else str(at), detections[at], ranked[at])
                for at in range(self._n_labels)
            ),
            micro=micro,
            macro_precision=mean_of_numbers([detection.precision for detection in detections]),
            macro_recall=mean_of_numbers([detection.recall for detection in detections]),
            macro_f1=mean_of_numbers([detection.f1 for detection in detections]),
            ranking=Ranking(
                classes=tuple(ranked),
                macro_roc_auc=mean_of_numbers([curve.roc_auc for curve in ranked]),
                macro_average_precision=mean_of_numbers([curve.average_precision for curve in ranked]),
                micro=self._pooled.result().classes[0],
            ),
            calibration=self._calibration.result(),
        )


def _detection(table: npt.NDArray[np.int64]) -> Detection:
    (neither, alarm), (missed, hit) = table.tolist()
    return Detection(
        true_positives=hit,
        false_positives=alarm,
        false_negatives=missed,
        true_negatives=neither,
        precision=hit / (hit + alarm) if hit + alarm else None,
        recall=hit / (hit + missed) if hit + missed else None,
        f1=2 * hit / (2 * hit + alarm + missed) if hit + alarm + missed else None,
    )
