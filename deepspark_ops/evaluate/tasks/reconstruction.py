"""Reconstruction of a net's input. Judged by MSE; a sample's error is the MSE of the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from deepspark_ops.evaluate.figures.reconstruction import Reconstruction, ReconstructionSum
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import FigureRow, MainFigure, MetricsReport
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum, rows_of


class ReconstructionMetrics(MetricsReport):
    """The whole file.

    Attributes:
        figures: What was found, in the units of the net's input.
    """

    task: Literal["reconstruction"] = "reconstruction"
    figures: Reconstruction

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for tables."""
        figures = self.figures
        return (
            FigureRow(name="mse", label="Mean squared error", value=figures.mse),
            FigureRow(name="mae", label="Mean absolute error", value=figures.mae),
            FigureRow(name="psnr", label="PSNR in dB", value=figures.psnr),
        )


class ReconstructionTask(TaskSum):
    """Sums a reconstruction over batches."""

    task = "reconstruction"
    figures = "mean squared error, PSNR, samples in and out"
    _sum: ReconstructionSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing; ``worst``: samples to keep, of the worst and of the best."""
        super().__init__(chosen)
        self._sum = ReconstructionSum(shown=worst)

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count what was given back against what was given."""
        outputs, originals = rows_of(answers[0]), rows_of(targets)
        self._sum.add(outputs, originals, start=start)
        difference = (
            outputs.astype(np.float64) - originals
        )  # as the histogram counts, so that a bar leads to its samples
        self._keep_losses((difference * difference).mean(axis=1), start)

    def metrics(self, head: ReportHead) -> ReconstructionMetrics:
        """Return the figures."""
        figures = self._sum.result()
        label = "Mean squared error"
        return ReconstructionMetrics(
            **self._common(head, n_samples=figures.n_samples),
            main=MainFigure(name="mse", label=label, value=figures.mse, higher_is_better=False, is_share=False),
            figures=figures,
        )
