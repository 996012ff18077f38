"""Methods of every task's count over a net's samples; stage evaluate knows only these methods of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.evaluate.scores import SampleLosses, joined
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, ScoredOn, Speed, now_text

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ReportHead:
    """Fields of a report of any task.

    Attributes:
        scored: What was scored on what.
        names: Of the classes, labels or outputs, in their order; may be shorter, or empty.
        speed: How fast the net scores.
        others: Further results of the same net.
    """

    scored: ScoredOn
    names: tuple[str, ...] = ()
    speed: Speed | None = None
    others: tuple[MetricsReport, ...] = ()


class TaskSum(ABC):
    """Sums a result of a net over batches. Not thread-safe.

    Attributes:
        task: What it counts.
        figures: What comes out, in words, what the net is judged by first.
        chosen: Which result of the net.
    """

    task: ClassVar[TaskName]
    figures: ClassVar[str]
    _sum: Any  # figures over batches, such as ``RegressionSum``

    def __init__(self, chosen: ChosenTask, *, worst: int = 0) -> None:
        """Start at nothing; ``worst``: samples to keep for the report."""
        self.chosen = chosen
        self._losses: list[SampleLosses] = []

    @abstractmethod
    def add(self, answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count the next batch.

        Args:
            answers: Of each of the chosen outputs (n, ...), after its activation; of probabilities of classes and
                labels (n, n_classes).
            targets: (n, ...), what they should be.
            start: Position of the first sample.

        Raises:
            DataError: A target that the task cannot have, or an answer that is not finite; says which sample.
        """

    @abstractmethod
    def metrics(self, head: ReportHead) -> MetricsReport:
        """Return what was found.

        Raises:
            DataError: No sample counted.
        """

    def line(self, metrics: MetricsReport) -> str:
        """Return what was found in a few words for the log."""
        return f"{metrics.main.label} {metrics.main.text()}"

    def merge(self, other: Self) -> None:
        """Count what another sum of the same result has counted, of other samples."""
        self._losses += other._losses
        self._sum.merge(other._sum)

    def samples(self) -> SampleLosses:
        """Return each sample's own error, in the order of the samples."""
        return joined(SampleLosses, self._losses)

    def last(self) -> SampleLosses:
        """Return the errors of the last batch, without ignored samples."""
        return self._losses[-1]

    def _keep_losses(self, losses: npt.NDArray[np.floating], start: int, counted: Array | None = None) -> None:
        index = start + np.arange(len(losses), dtype=np.int64)
        rows = slice(None) if counted is None else counted
        self._losses.append(SampleLosses(index[rows], np.asarray(losses, np.float64)[rows]))

    def _common(
        self, head: ReportHead, *, n_samples: int, n_ignored: int = 0, loss: float | None = None
    ) -> dict[str, Any]:
        """Return the fields of the reports of all tasks; the default loss is the mean of the samples' errors."""
        return {
            "created": now_text(),
            "scored": head.scored,
            "n_samples": n_samples,
            "n_ignored": n_ignored,
            "loss": self._mean_loss() if loss is None else loss,
            "speed": head.speed,
            "others": head.others,
        }

    def _mean_loss(self) -> float:
        return float(self.samples().loss.mean()) if self._losses else float("nan")


def rows_of(values: Array) -> npt.NDArray[np.float64]:
    """Return values as (n, numbers of a sample), float64."""
    return np.asarray(values, np.float64).reshape(len(values), -1)
