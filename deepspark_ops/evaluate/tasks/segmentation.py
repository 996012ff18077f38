"""Segmentation: a class a pixel. Judged by the mean IoU; an image's error is the share of wrong pixels.

A net with one axis beside the classes labels a sequence: a class a time step, judged by the share of right steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.segmentation import Segmentation, SegmentationSum
from deepspark_ops.evaluate.tasks.choice import SEQUENCE, ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import FigureRow, MetricsReport, share_figure, share_rows
from deepspark_ops.evaluate.tasks.task_sum import Array, ReportHead, TaskSum


class SegmentationMetrics(MetricsReport):
    """The whole file; ``n_ignored`` counts pixels, or time steps.

    Attributes:
        figures: Figures of the classes; the words ``pixel`` in their names stand for ``unit``.
        unit: Position of a class: a pixel, or a time step of a sequence.
    """

    task: Literal["segmentation"] = "segmentation"
    figures: Segmentation
    unit: Literal["pixel", "time step"] = "pixel"

    @property
    def kind(self) -> str:
        """The task in words."""
        return super().kind if self.unit == "pixel" else SEQUENCE

    @property
    def counted(self) -> str:
        """``pixels`` or ``time steps``."""
        return f"{self.unit}s"

    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for tables."""
        figures, counted = self.figures, self.counted
        name = f"{self.unit.replace(' ', '_')}_accuracy"
        right = (name, f"{counted.capitalize()} right", figures.pixel_accuracy)
        iou = ("mean_iou", "Mean IoU", figures.mean_iou)
        return share_rows(
            *((iou, right) if self.unit == "pixel" else (right, iou)),
            ("mean_accuracy", f"Mean over classes of {counted} right", figures.mean_accuracy),
            ("frequency_weighted_iou", f"IoU weighted by {counted}", figures.frequency_weighted_iou),
        )


class SegmentationTask(TaskSum):
    """Sums a segmentation over batches; the error of a sequence is the share of wrong time steps."""

    task = "segmentation"
    figures = "mean IoU, pixels right, overlays"
    _sum: SegmentationSum

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing; ``worst``: images to keep."""
        super().__init__(chosen)
        self._sum = SegmentationSum(chosen.n_classes, ignore_label=chosen.ignore_label, worst=worst)

    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count scores (n, classes, ...) against labels of the same number of pixels."""
        labels = targets.reshape(len(targets), -1)
        if not np.isfinite(answers[0]).all():
            msg = f"sample {start} or one after it: the net's scores are not finite; score an earlier snapshot"
            raise DataError(msg)
        predicted = predicted_classes(answers[0]).reshape(labels.shape)
        self._sum.add(predicted, labels, start=start)
        ignored = self.chosen.ignore_label
        counted = np.ones(labels.shape, np.bool_) if ignored is None else labels != ignored
        wrong = (counted & (predicted != labels)).sum(axis=1)
        n = counted.sum(axis=1)
        self._keep_losses(wrong / np.maximum(n, 1), start, n > 0)

    def metrics(self, head: ReportHead) -> SegmentationMetrics:
        """Return the figures."""
        figures = self._sum.result(head.names)
        steps = ("time_step_accuracy", "Time steps right", figures.pixel_accuracy)
        is_sequence = self.chosen.is_sequence
        return SegmentationMetrics(
            **self._common(head, n_samples=figures.n_samples, n_ignored=figures.n_ignored),
            main=share_figure(*(steps if is_sequence else ("mean_iou", "Mean IoU", figures.mean_iou))),
            figures=figures,
            unit="time step" if is_sequence else "pixel",
        )


class SequenceTask(SegmentationTask):
    """Sums classes of time steps over batches."""

    figures = "time steps right, mean IoU"


def predicted_classes(scores: Array) -> npt.NDArray[np.int64]:
    """Return the class of each pixel, (n, ...), from scores or probabilities (n, classes, ...).

    The class has the best score; a single probability a pixel gives class 1 above 0.5.
    """
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.5).astype(np.int64)
    classes: npt.NDArray[np.int64] = scores.argmax(axis=1)
    return classes
