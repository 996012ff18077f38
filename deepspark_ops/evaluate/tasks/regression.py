"""Regression: numbers against numbers. Judged by RMSE; a sample's error is the mean squared residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from deepspark_ops.evaluate.figures.regression import Regression, RegressionSum
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import FigureRow, MainFigure, MetricsReport
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum, rows_of


class RegressionMetrics(MetricsReport):
    """The whole file.

    Attributes:
        figures: What was found.
    """

    task: Literal["regression"] = "regression"
    figures: Regression

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for tables."""
        figures = self.figures
        return (
            FigureRow(name="rmse", label="RMSE", value=figures.rmse),
            FigureRow(name="mae", label="Mean absolute error", value=figures.mae),
            FigureRow(name="r2", label="R2", value=figures.r2),
            FigureRow(name="bias", label="Mean residual", value=figures.bias),
        )


class RegressionTask(TaskSum):
    """Sums a regression over batches."""

    task = "regression"
    figures = "RMSE, mean absolute error, R2, residuals"
    _sum: RegressionSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing; ``worst``: samples with the largest errors to keep."""
        super().__init__(chosen)
        self._sum = RegressionSum(chosen.n_values, worst=worst)

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count numbers (n, ...) against numbers of the same count."""
        predicted, true = rows_of(answers[0]), rows_of(targets)
        self._sum.add(predicted, true, start=start)
        self._keep_losses(((predicted - true) ** 2).mean(axis=1), start)

    def metrics(self, head: ReportHead) -> RegressionMetrics:
        """Return the figures."""
        figures = self._sum.result(head.names)
        return RegressionMetrics(
            **self._common(head, n_samples=figures.n_samples),
            main=MainFigure(name="rmse", label="RMSE", value=figures.rmse, higher_is_better=False, is_share=False),
            figures=figures,
        )
