"""Embedding: similarity of samples by the distance of vectors. The main figure of pairs is the ROC-AUC.

For a vector and a class per sample the main figure is the share of samples whose nearest neighbour has the same class.
A sample's error is 0 if the classes agree, else 1. ``figures.embedding.MAX_NEIGHBOURS`` limits the compared samples.

A pair's error is the pair's part in ContrastiveLoss: half of d^2 for a similar pair and half of max(margin - d, 0)^2
for another pair (Caffe's contrastive_loss_layer.cpp). The mean of the errors is the net's loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Self

import numpy as np

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.embedding import Neighbours, NeighbourSum, Verification, VerificationSum
from deepspark_ops.evaluate.figures.extremes import Extremes, NamedSample
from deepspark_ops.evaluate.scores import SampleLosses
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import FigureRow, MetricsReport, share_figure, share_rows
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum, rows_of

DEFAULT_MARGIN: Final = 1.0
"""Caffe's."""
NEAREST: Final = "Nearest neighbour of its class"


class EmbeddingMetrics(MetricsReport):
    """The whole file.

    Attributes:
        figures: What the pairs say; None where single vectors were compared by their classes.
        width: Numbers of a vector.
        worst: Pairs with the largest errors; that is their value.
        neighbours: Whether the nearest vectors are of the same class; None of pairs.
    """

    task: Literal["embedding"] = "embedding"
    figures: Verification | None
    width: int
    worst: tuple[NamedSample, ...] = ()
    neighbours: Neighbours | None = None

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for tables."""
        if (neighbours := self.neighbours) is not None:
            return share_rows(
                ("recall_at_1", NEAREST, neighbours.recall_at_1),
                ("recall_at_5", "One of the nearest five of its class", neighbours.recall_at_5),
            )
        figures = self.figures
        assert figures is not None
        return (
            *share_rows(
                ("roc_auc", "ROC-AUC of pairs", figures.ranked.roc_auc),
                ("verification_accuracy", "Accuracy at best threshold", figures.best_accuracy),
                ("equal_error_rate", "Equal error rate", figures.equal_error_rate),
            ),
            FigureRow(name="best_threshold", label="Best threshold, a distance", value=figures.best_threshold),
            *share_rows(("average_precision", "Average precision", figures.ranked.average_precision)),
            FigureRow(name="loss", label="Mean contrastive loss", value=self.loss),
        )


class EmbeddingTask(TaskSum):
    """Sums pairs over batches."""

    task = "embedding"
    figures = "ROC-AUC of pairs, verification accuracy, equal error rate"
    _sum: VerificationSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing; ``worst``: pairs to keep."""
        super().__init__(chosen)
        self._margin = chosen.margin or DEFAULT_MARGIN
        self._sum = VerificationSum()
        self._worst = Extremes(worst)

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count the two vectors of each pair against 1 for similar and 0 for not.

        Raises:
            DataError: A similarity that is neither.
        """
        similar = targets.reshape(len(targets))
        wrong = np.flatnonzero((similar != 0) & (similar != 1))
        if len(wrong):
            msg = f"sample {start + wrong[0]}: similarity is {similar[wrong[0]]}; allowed: 1 for similar, 0 for not"
            raise DataError(msg)
        first, second = (rows_of(answer) for answer in answers)
        distance = np.sqrt(((first - second) ** 2).sum(axis=1))
        self._sum.add(distance, similar == 1, start=start)
        losses = 0.5 * np.where(similar == 1, distance, np.maximum(self._margin - distance, 0.0)) ** 2
        self._worst.add(losses, start=start)
        self._keep_losses(losses, start)

    def merge(self, other: Self) -> None:
        """Count what another sum of the same result has counted, of other samples."""
        super().merge(other)
        self._worst.merge(other._worst)

    def metrics(self, head: ReportHead) -> EmbeddingMetrics:
        """Return the figures."""
        figures = self._sum.result()
        accuracy = ("verification_accuracy", "Accuracy at best threshold", figures.best_accuracy)
        area = figures.ranked.roc_auc
        return EmbeddingMetrics(
            **self._common(head, n_samples=figures.n_pairs),
            main=share_figure(*accuracy if area is None else ("roc_auc", "ROC-AUC of pairs", area)),
            figures=figures,
            width=self.chosen.n_values,
            worst=self._worst.result(),
        )


class NeighbourTask(TaskSum):
    """Sums single vectors over batches, by the classes of the samples."""

    task = "embedding"
    figures = "nearest neighbours of the same class"
    _sum: NeighbourSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing."""
        super().__init__(chosen)
        self._sum = NeighbourSum()

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count vectors (n, ...) of samples of classes (n,)."""
        self._sum.add(rows_of(answers[0]), targets.reshape(len(targets)), start=start)

    def last(self) -> SampleLosses:
        """Return no errors: only all samples together have errors."""
        return SampleLosses(np.zeros(0, np.int64), np.zeros(0))

    def samples(self) -> SampleLosses:
        """Return the error of each compared sample: 1 if the nearest neighbour has another class, else 0."""
        index, rank = self._sum.ranks()
        return SampleLosses(index[rank >= 0], (rank[rank >= 0] > 0).astype(np.float64))

    def metrics(self, head: ReportHead) -> EmbeddingMetrics:
        """Return the figures.

        Raises:
            DataError: No two samples are of one class.
        """
        neighbours = self._sum.result()
        if neighbours.recall_at_1 is None:
            msg = f"of {neighbours.n_compared} samples no two are of one class: there is no neighbour to find"
            raise DataError(msg)
        return EmbeddingMetrics(
            **self._common(
                head,
                n_samples=neighbours.n_compared - neighbours.n_alone,
                n_ignored=neighbours.n_alone,
                loss=1.0 - neighbours.recall_at_1,
            ),
            main=share_figure("recall_at_1", NEAREST, neighbours.recall_at_1),
            figures=None,
            width=self.chosen.n_values,
            neighbours=neighbours,
        )
