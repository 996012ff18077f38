"""``metrics.json`` of a classification: top-k, loss, confusion matrix, a row per class, the surest mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from deepspark_ops.evaluate.figures.calibration import Calibration
from deepspark_ops.evaluate.figures.confusion import ConfusedPair
from deepspark_ops.evaluate.figures.ranking import Ranking
from deepspark_ops.evaluate.scores import Answers, Mistake, Scores, ScoreSum, accuracy_interval
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import (
    METRICS_VERSION,
    FigureRow,
    MainFigure,
    MetricsReport,
    ScoredOn,
    Speed,
    now_text,
    share_figure,
    share_rows,
)
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.sizes import share_text


class ClassReport(FrozenModel):
    """Figures of a class. A share is None if the denominator is zero.

    Attributes:
        label: The class' number.
        name: Its name, or the number as text.
        support: Samples that are of this class.
        predicted: Samples that were taken for this class.
        correct: Samples that are both.
        accuracy: correct / support; the class' recall.
        precision: correct / predicted.
        f1: Harmonic mean of accuracy and precision.
    """

    label: int
    name: str
    support: int
    predicted: int
    correct: int
    accuracy: float | None
    precision: float | None
    f1: float | None


class ClassificationMetrics(MetricsReport):
    """The whole file.

    Attributes:
        top1: Share with the true class first, Caffe's ties.
        top1_interval: 95 % interval of ``top1`` (Wilson).
        top5: Share with the true class among the first five; None with five classes or fewer.
        loss: Mean -log probability of the true class.
        classes: One per class, in label order.
        confusion: Counts, true class by row, predicted class by column; empty with more than ``MOST_MATRIX_CLASSES``
            classes.
        confused: Wrong pairs of classes, the most frequent first, at most ``MOST_CONFUSED``; empty in files of earlier
            releases.
        mistakes: Surest wrong predictions first.
        calibration: How far the net's confidence is from how often it is right; None in files before version 3, and
            for scores that are no probabilities.
        ranking: Each class against the rest, by its probability: ROC-AUC, average precision; None likewise, and with
            more than ``MOST_RANKED_CLASSES`` classes.
    """

    task: Literal["classification"] = "classification"
    top1: float
    top1_interval: tuple[float, float]
    top5: float | None
    classes: tuple[ClassReport, ...]
    confusion: tuple[tuple[int, ...], ...]
    confused: tuple[ConfusedPair, ...] = ()
    mistakes: tuple[Mistake, ...]
    calibration: Calibration | None = None
    ranking: Ranking | None = None

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for tables."""
        top5 = share_rows(("top5", "Top-5 accuracy", self.top5)) if self.top5 is not None else ()
        loss = FigureRow(name="loss", label="Mean loss", value=self.loss)
        return (*share_rows(("top1", "Top-1 accuracy", self.top1)), *top5, loss)

    def further_rows(self) -> tuple[FigureRow, ...]:
        """Return figures of all thresholds and of confidence."""
        figures: list[tuple[str, str, float | None]] = []
        if self.ranking is not None:
            figures.append(("roc_auc", "ROC-AUC, mean of classes", self.ranking.macro_roc_auc))
            precision = self.ranking.macro_average_precision
            figures.append(("average_precision", "Average precision, mean of classes", precision))
        if self.calibration is not None:
            figures.append(("ece", "Expected calibration error", self.calibration.ece))
        return share_rows(*figures)


class ClassificationTask(TaskSum):
    """Sums a classification: top-k, loss, confusion matrix, mistakes."""

    task = "classification"
    figures = "top-1, top-5, loss, confusion matrix, each class"
    _sum: ScoreSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0, wants_ranking: bool = True) -> None:
        """Start at nothing; ``worst``: how many mistakes to keep; ``wants_ranking`` as of ``ScoreSum``."""
        super().__init__(chosen)
        self._sum = ScoreSum(
            chosen.n_classes, worst=worst, ignore_label=chosen.ignore_label, wants_ranking=wants_ranking
        )
        self._scores: Scores | None = None

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count probabilities (n, n_classes) against labels (n,)."""
        self._sum.add(answers[0], targets.reshape(len(targets)), start=start)

    def scores(self) -> Scores:
        """Return the scores of everything added."""
        if self._scores is None:
            self._scores = self._sum.result()
        return self._scores

    def metrics(self, head: ReportHead) -> ClassificationMetrics:
        """Return the figures."""
        return build_metrics(self.scores(), head.scored, head.names, head.speed, head.others)

    def line(self, metrics: MetricsReport) -> str:
        """Return the figures in a few words."""
        scores = self.scores()
        n_wrong = scores.n_samples - int(scores.confusion.correct.sum())
        return f"top-1 {share_text(scores.top1)}, loss {scores.loss:.4f}, {n_wrong:,} mistakes"

    def last(self) -> Answers:
        """Return the answers of the last batch, without ignored samples."""
        return self._sum.last()

    def samples(self) -> Answers:
        """Return the answers, sample by sample."""
        return self.scores().answers


def build_metrics(
    scores: Scores,
    scored: ScoredOn,
    class_names: tuple[str, ...],
    speed: Speed | None = None,
    others: tuple[MetricsReport, ...] = (),
) -> ClassificationMetrics:
    """Return the report of ``scores``; classes beyond ``class_names`` are named by number."""
    confusion = scores.confusion
    counts = np.stack([confusion.support, confusion.predicted, confusion.correct])
    interval = accuracy_interval(scores.top1, scores.n_samples)
    return ClassificationMetrics(
        created=now_text(),
        scored=scored,
        main=accuracy_figure(scores.top1, interval),
        n_samples=scores.n_samples,
        n_ignored=scores.n_ignored,
        top1=scores.top1,
        top1_interval=interval,
        top5=scores.top5,
        loss=scores.loss,
        classes=tuple(
            ClassReport(
                label=label,
                name=class_name(class_names, label),
                support=support,
                predicted=predicted,
                correct=correct,
                accuracy=correct / support if support else None,
                precision=correct / predicted if predicted else None,
                f1=2 * correct / (support + predicted) if support + predicted else None,
            )
            for label, (support, predicted, correct) in enumerate(counts.T.tolist())
        ),
        confusion=() if confusion.matrix is None else tuple(map(tuple, confusion.matrix.tolist())),
        confused=confusion.pairs,
        mistakes=scores.mistakes,
        speed=speed,
        others=others,
        calibration=scores.calibration,
        ranking=scores.ranking,
    )


def accuracy_figure(top1: float, interval: tuple[float, float]) -> MainFigure:
    """Return what a classification is judged by."""
    return share_figure("top1", "Top-1 accuracy", top1, interval)


def upgraded(old: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file of version 1 or 2, whose task is classification, in the form of version 3.

    Raises:
        KeyError, ValueError: It is damaged.
    """
    low, high = old["top1_interval"]
    main = accuracy_figure(old["top1"], (low, high)).model_dump()
    return {**old, "format_version": METRICS_VERSION, "task": "classification", "main": main}
