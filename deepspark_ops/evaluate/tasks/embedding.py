"""Embedding: are two samples alike, by the distance of their vectors? Judged by the ROC-AUC of the pairs.

A pair's own error is what ContrastiveLoss takes for it, half of d^2 for a similar pair and half of max(margin - d, 0)^2
for another (Caffe's contrastive_loss_layer.cpp), whose mean is the net's loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Self

import numpy as np

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.embedding import Verification, VerificationSum
from deepspark_ops.evaluate.figures.extremes import Extremes, NamedSample
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import FigureRow, MainFigure, MetricsReport, now_text
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum, rows_of

DEFAULT_MARGIN: Final = 1.0
"""Caffe's."""


class EmbeddingMetrics(MetricsReport):
    """The whole file.

    Attributes:
        figures: What the pairs say.
        width: Numbers of a vector.
        worst: Pairs with the largest errors; that is their value.
    """

    task: Literal["embedding"] = "embedding"
    figures: Verification
    width: int
    worst: tuple[NamedSample, ...] = ()

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures that tables have."""
        found = self.figures
        return (
            FigureRow(name="roc_auc", label="ROC-AUC of pairs", value=found.ranked.roc_auc, is_share=True),
            FigureRow(
                name="verification_accuracy", label="Accuracy at best threshold", value=found.best_accuracy,
                is_share=True,
            ),
            FigureRow(name="equal_error_rate", label="Equal error rate", value=found.equal_error_rate, is_share=True),
            FigureRow(name="best_threshold", label="Best threshold, a distance", value=found.best_threshold),
            FigureRow(
                name="average_precision", label="Average precision", value=found.ranked.average_precision, is_share=True
            ),
            FigureRow(name="loss", label="Mean contrastive loss", value=self.loss),
        )  # fmt: skip


class EmbeddingTask(TaskSum):
    """Sums pairs over batches."""

    task = "embedding"
    figures = "ROC-AUC of pairs, verification accuracy, equal error rate"

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

    def _merge(self, other: Self) -> None:
        self._sum.merge(other._sum)
        self._worst.merge(other._worst)

    def metrics(self, head: ReportHead) -> EmbeddingMetrics:
        """Return the figures."""
        found = self._sum.result()
        area = found.ranked.roc_auc
        return EmbeddingMetrics(
            created=now_text(),
            scored=head.scored,
            main=MainFigure(
                name="roc_auc" if area is not None else "verification_accuracy",
                label="ROC-AUC of pairs" if area is not None else "Accuracy at best threshold",
                value=found.best_accuracy if area is None else area,
                higher_is_better=True,
                is_share=True,
            ),
            n_samples=found.n_pairs,
            n_ignored=0,
            loss=self._mean_loss(),
            speed=head.speed,
            others=head.others,
            figures=found,
            width=self.chosen.n_values,
            worst=self._worst.result(),
        )
