"""Several labels a sample. Judged by the mean average precision; a sample's error is the mean cross entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from deepspark_ops.evaluate.figures.multi_label import MultiLabel, MultiLabelSum
from deepspark_ops.evaluate.scores import SMALLEST_PROBABILITY
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import FigureRow, MetricsReport, share_figure, share_rows
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum, rows_of


class MultiLabelMetrics(MetricsReport):
    """The whole file; ``n_ignored`` counts pairs of a sample and a label.

    Attributes:
        figures: What was found.
    """

    task: Literal["multi_label"] = "multi_label"
    figures: MultiLabel

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for tables."""
        figures = self.figures
        shares = share_rows(
            ("mean_average_precision", "Mean average precision", figures.ranking.macro_average_precision),
            ("macro_roc_auc", "Mean ROC-AUC", figures.ranking.macro_roc_auc),
            ("micro_f1", "F1 of all labels together", figures.micro.f1),
            ("macro_f1", "Mean F1", figures.macro_f1),
            ("subset_accuracy", "Samples with all labels right", figures.subset_accuracy),
            ("hamming_loss", "Share of wrong labels", figures.hamming_loss),
            ("ece", "Calibration error (ECE)", figures.calibration.ece),
        )
        return (*shares, FigureRow(name="loss", label="Mean cross entropy a label", value=self.loss))


class MultiLabelTask(TaskSum):
    """Sums several labels a sample over batches."""

    task = "multi_label"
    figures = "mean average precision, ROC-AUC, precision, recall, F1, calibration"
    _sum: MultiLabelSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing."""
        super().__init__(chosen)
        self._sum = MultiLabelSum(chosen.n_classes, ignore_label=chosen.ignore_label)

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count probabilities (n, n_labels) against 0 and 1."""
        probabilities, truth = rows_of(answers[0]), rows_of(targets)
        self._sum.add(probabilities, truth, start=start)
        ignored = self.chosen.ignore_label
        counted = np.ones(truth.shape, np.bool_) if ignored is None else truth != ignored
        entropy = -np.log(np.maximum(np.where(truth == 1, probabilities, 1.0 - probabilities), SMALLEST_PROBABILITY))
        n = counted.sum(axis=1)
        self._keep_losses(np.where(counted, entropy, 0.0).sum(axis=1) / np.maximum(n, 1), start, n > 0)

    def metrics(self, head: ReportHead) -> MultiLabelMetrics:
        """Return the figures."""
        figures = self._sum.result(head.names)
        precision = figures.ranking.macro_average_precision or 0.0  # None: no label is there in any sample
        return MultiLabelMetrics(
            **self._common(head, n_samples=figures.n_samples, n_ignored=figures.n_ignored),
            main=share_figure("mean_average_precision", "Mean average precision", precision),
            figures=figures,
        )
