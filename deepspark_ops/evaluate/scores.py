"""Classification scores in plain numpy, batch by batch: top-k, loss, confusion matrix, per-class figures, mistakes.

This module knows neither nets nor files. Ties count as in Caffe, so top-1 equals the net's Accuracy layer. In
accuracy_layer.cpp (BVLC Caffe 1.0) the rank is the number of *other* classes with at least the true class' score. Hence
a tie counts against the true class.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.calibration import Calibration, CalibrationSum
from deepspark_ops.evaluate.figures.confusion import Confusion
from deepspark_ops.evaluate.figures.exact_sum import ExactSums
from deepspark_ops.evaluate.figures.ranking import Ranking, RankingSum

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]

SMALLEST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""Caffe's floor under the logarithm of a probability (kLOG_THRESHOLD, FLT_MIN), so one sample costs at most 87.34."""
TOP_K = 5
MOST_RANKED_CLASSES = 2_048
"""With more classes no class is ranked against the rest: the bins of all scores would need more than 64 MiB."""
N_CURVES = 5
"""Classes whose ROC and precision-recall curves are kept: those that are ranked worst."""
_ROUNDING = 1e-4
NORMAL_95 = 1.959964
"""97.5 % quantile of the normal distribution: two-sided 95 %."""


@dataclass(frozen=True)
class Mistake:
    """A sample with a wrong prediction.

    Attributes:
        index: Position of the sample in the order it was read.
        label: True class.
        predicted: Class with the largest score among the others.
        probability: The net's probability of ``predicted``, in [0, 1].
        label_probability: Its probability of ``label``.
    """

    index: int
    label: int
    predicted: int
    probability: float
    label_probability: float


@dataclass(frozen=True)
class SampleLosses:
    """The error of each sample, without ignored samples. The arrays are read only by agreement.

    Attributes:
        index: (n_samples,) int64, position of the sample in the order it was read.
        loss: (n_samples,) float64, the sample's own error, smaller for better; which one, the task says.
    """

    index: npt.NDArray[np.int64]
    loss: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.index)


@dataclass(frozen=True)
class Answers(SampleLosses):
    """A classifier's answer to each sample, without ignored samples, in the order of the samples.

    ``loss`` is -log probability of the true class, floored as Caffe does.

    Attributes:
        label: (n_samples,) int32, true class.
        predicted: (n_samples,) int32, the net's class.
        rank: (n_samples,) int32, how many other classes score at least as much as the true one: 0 is right, below
            ``TOP_K`` is right in top-5.
    """

    label: npt.NDArray[np.int32]
    predicted: npt.NDArray[np.int32]
    rank: npt.NDArray[np.int32]


@dataclass(frozen=True)
class ScoredResult:
    """A result of the net on some samples.

    Attributes:
        answers: Of each output of the result (n, ...), after its activation.
        targets: (n, ...), what they should be.
        losses: Errors of samples that count, those of these samples among them.
    """

    answers: Sequence[npt.NDArray[Any]]
    targets: npt.NDArray[Any]
    losses: SampleLosses


@dataclass(frozen=True)
class ScoredBatch:
    """Consecutive scored samples.

    Attributes:
        start: Position of the first.
        content: (n,), hashes of the samples' stored values.
        results: Of each result of the net, the main one first.
    """

    start: int
    content: npt.NDArray[np.uint64]
    results: Sequence[ScoredResult]


@dataclass(frozen=True)
class Scores:
    """Scores of a net on a set of samples.

    Attributes:
        n_samples: Samples that count.
        n_ignored: Samples left out because they carry the net's ``ignore_label``.
        top1: Share of samples whose true class has the largest score.
        top5: Share of samples whose true class is among the five largest; None with five classes or fewer.
        loss: Mean of -log(probability of the true class), natural logarithm, floored as Caffe does.
        confusion: Counts of true and predicted classes.
        mistakes: The wrong predictions that the net was surest of, surest first.
        answers: Sample by sample.
        calibration: How far the net's confidence is from how often it is right; None if scores are no probabilities.
        ranking: Each class against the rest, by its probability; None likewise, and with more than
            ``MOST_RANKED_CLASSES`` classes.
    """

    n_samples: int
    n_ignored: int
    top1: float
    top5: float | None
    loss: float
    confusion: Confusion
    mistakes: tuple[Mistake, ...]
    answers: Answers
    calibration: Calibration | None = None
    ranking: Ranking | None = None


_Losses = TypeVar("_Losses", bound=SampleLosses)


class ScoreSum:
    """Sums scores over batches. Not thread-safe.

    Example:
        >>> total = ScoreSum(n_classes=2, worst=1)
        >>> total.add(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]))
        >>> scores = total.result()
        >>> scores.top1, scores.confusion.matrix.tolist(), scores.mistakes[0].index
        (0.5, [[1, 0], [1, 0]], 1)
    """

    def __init__(
        self, n_classes: int, *, worst: int = 0, ignore_label: int | None = None, wants_ranking: bool = True
    ) -> None:
        """Start at nothing; keep the ``worst`` mistakes. Samples of ``ignore_label`` (Caffe's) do not count.

        Rankings of each class against the rest, and calibration, take some megabytes.
        """
        self._n_classes = n_classes
        self._worst = worst
        self._ignore_label = ignore_label
        self._top5 = 0
        self._loss = ExactSums()
        self._calibration = CalibrationSum()
        self._ranking = RankingSum(n_classes) if n_classes <= MOST_RANKED_CLASSES else None
        self._is_probability = wants_ranking
        self._n_read = 0
        self._n_samples = 0
        self._mistakes: list[Mistake] = []
        self._answers: list[Answers] = []

    def add(self, probabilities: Floats, labels: npt.NDArray[np.generic], *, start: int | None = None) -> None:
        """Count a batch: distributions (n, n_classes), read only, and labels (n,), whole numbers of any dtype.

        Without ``start`` the samples follow those that were read.

        Raises:
            DataError: A label outside [0, n_classes) or a probability that is not finite; says which sample.
        """
        first = self._n_read if start is None else start
        self._n_read += len(labels)
        classes = _whole_labels(labels, first)
        counted = np.ones(len(classes), np.bool_) if self._ignore_label is None else classes != self._ignore_label
        rows = np.flatnonzero(counted)
        wide = probabilities[rows].astype(np.float64)
        truth = classes[rows]
        self._refuse_bad(wide, truth, first + rows)
        true_probability, rank, predicted = _rank(wide, truth)
        self._n_samples += len(rows)
        self._top5 += int(np.count_nonzero(rank < TOP_K))
        loss = -np.log(np.maximum(true_probability, SMALLEST_PROBABILITY))
        self._loss.add(loss[:, None])
        self._add_probabilities(wide, truth, rank == 0, first)
        self._answers.append(
            Answers(
                index=(first + rows).astype(np.int64),
                label=truth.astype(np.int32),
                predicted=predicted.astype(np.int32),
                rank=rank.astype(np.int32),
                loss=loss,
            )
        )
        wrong = np.flatnonzero(rank)
        sureness = wide[wrong, predicted[wrong]]
        self._keep_mistakes(
            Mistake(
                index=int(first + rows[row]),
                label=int(truth[row]),
                predicted=int(predicted[row]),
                probability=float(wide[row, predicted[row]]),
                label_probability=float(true_probability[row]),
            )
            for row in wrong[np.argsort(-sureness, kind="stable")[: self._worst]]
        )

    def merge(self, other: ScoreSum) -> None:
        """Add the counts of another sum with the same options, over other samples."""
        self._n_read += other._n_read
        self._n_samples += other._n_samples
        self._top5 += other._top5
        self._loss.merge(other._loss)
        self._calibration.merge(other._calibration)
        if self._ranking is not None and other._ranking is not None:
            self._ranking.merge(other._ranking)
        self._is_probability &= other._is_probability
        self._keep_mistakes(other._mistakes)
        self._answers += other._answers

    def last(self) -> Answers:
        """Return the answers of the last batch, without ignored samples."""
        return self._answers[-1]

    def result(self) -> Scores:
        """Return the scores of everything added so far.

        Raises:
            DataError: No sample counted.
        """
        if not self._n_samples:
            msg = f"no sample to score: {self._n_read} read, all of ignore_label={self._ignore_label}"
            raise DataError(msg)
        n = self._n_samples
        answers = joined(Answers, self._answers)
        confusion = Confusion.of(answers.label, answers.predicted, self._n_classes)
        return Scores(
            n_samples=n,
            n_ignored=self._n_read - n,
            top1=float(confusion.correct.sum()) / n,
            top5=self._top5 / n if self._n_classes > TOP_K else None,
            loss=self._loss.floats()[0] / n,
            confusion=confusion,
            mistakes=tuple(self._mistakes),
            answers=answers,
            calibration=self._calibration.result() if self._is_probability else None,
            ranking=self._ranking.result(n_curves=N_CURVES) if self._ranking and self._is_probability else None,
        )

    def _add_probabilities(self, wide: Floats, truth: Labels, is_right: npt.NDArray[np.bool_], start: int) -> None:
        """Count what only probabilities tell; a float32 softmax may be above 1 by a rounding."""
        self._is_probability &= bool((wide >= -_ROUNDING).all() and (wide <= 1.0 + _ROUNDING).all())
        if self._is_probability:
            shares = np.clip(wide, 0.0, 1.0)
            self._calibration.add(shares.max(axis=1), is_right, start=start)
            if self._ranking is not None:
                self._ranking.add_labels(shares, truth, start=start)

    def _refuse_bad(self, probabilities: Floats, labels: Labels, indices: npt.NDArray[np.intp]) -> None:
        outside = np.flatnonzero((labels < 0) | (labels >= self._n_classes))
        if len(outside):
            at = outside[0]
            allowed = f"[0, {self._n_classes}), the classes that the net scores"
            msg = f"sample {indices[at]}: label {labels[at]} outside {allowed}"
            raise DataError(msg)
        broken = np.flatnonzero(~np.isfinite(probabilities).all(axis=1))
        if len(broken):
            remedy = "the weights diverged, score an earlier snapshot"
            msg = f"sample {indices[broken[0]]}: the net's scores are not finite; {remedy}"
            raise DataError(msg)

    def _keep_mistakes(self, mistakes: Iterable[Mistake]) -> None:
        """Keep the mistakes that the net was surest of; among equal ones the earlier sample."""
        surest = sorted([*self._mistakes, *mistakes], key=lambda mistake: (-mistake.probability, mistake.index))
        self._mistakes = surest[: self._worst]


def joined(form: type[_Losses], parts: Sequence[_Losses]) -> _Losses:
    """Return the joined errors of batches, in the order of the samples, as fresh arrays."""
    names = [field.name for field in dataclasses.fields(form)]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    order = np.argsort(columns["index"], kind="stable")
    return form(**{name: values[order] for name, values in columns.items()})


def softmax(scores: Floats) -> npt.NDArray[np.float64]:
    """Return the softmax over the last axis, computed in float64: exp(x - max) / sum.

    Example:
        >>> softmax(np.array([[0.0, np.log(3.0)]])).round(6).tolist()
        [[0.25, 0.75]]
    """
    wide = scores.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    result: npt.NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return result


def accuracy_interval(accuracy: float, n_samples: int) -> tuple[float, float]:
    """Return the 95 % interval of a share counted on ``n_samples`` samples.

    Wilson, "Probable inference, the law of succession, and statistical inference" (1927): the interval stays inside [0,
    1]. For shares near 1 and small sets the usual +-1.96 sigma is too narrow.

    Example:
        >>> [round(bound, 3) for bound in accuracy_interval(0.98, 360)]
        [0.96, 0.99]
    """
    z2 = NORMAL_95**2
    centre = (accuracy + z2 / (2 * n_samples)) / (1 + z2 / n_samples)
    half = (
        NORMAL_95
        / (1 + z2 / n_samples)
        * math.sqrt(accuracy * (1 - accuracy) / n_samples + z2 / (4 * n_samples * n_samples))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def _whole_labels(labels: npt.NDArray[np.generic], first: int) -> Labels:
    classes = labels.astype(np.int64)
    uneven = np.flatnonzero(classes != labels)
    if len(uneven):
        at = uneven[0]
        msg = f"sample {first + at}: label {labels[at]} is not a whole number; class labels are 0, 1, 2, ..."
        raise DataError(msg)
    return classes


def _rank(probabilities: Floats, labels: Labels) -> tuple[Floats, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return, per row: the true class' probability, the other classes with at least this, and the predicted class.

    The true class is predicted only if every other class has less, else the first of the largest other classes. So the
    confusion matrix' diagonal adds up to top-1.
    """
    rows = np.arange(len(labels))
    true_probability = probabilities[rows, labels]
    other_probabilities = probabilities.copy()
    other_probabilities[rows, labels] = -np.inf
    rank = np.count_nonzero(other_probabilities >= true_probability[:, None], axis=1)
    predicted = np.where(
        rank == 0, labels, other_probabilities.argmax(axis=1) if other_probabilities.shape[1] > 1 else labels
    )
    return true_probability, rank, predicted
