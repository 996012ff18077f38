"""All tasks: how each is summed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepspark_ops.config.shared_options.task import TASK_NAMES, TaskName
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.classification import ClassificationTask
from deepspark_ops.evaluate.tasks.embedding import EmbeddingTask, NeighbourTask
from deepspark_ops.evaluate.tasks.multi_label import MultiLabelTask
from deepspark_ops.evaluate.tasks.reconstruction import ReconstructionTask
from deepspark_ops.evaluate.tasks.regression import RegressionTask
from deepspark_ops.evaluate.tasks.segmentation import SegmentationTask, SequenceTask
from deepspark_ops.evaluate.tasks.task_sum import TaskSum

_ALL: Final[tuple[type[TaskSum], ...]] = (
    ClassificationTask,
    MultiLabelTask,
    RegressionTask,
    EmbeddingTask,
    ReconstructionTask,
    SegmentationTask,
)
TASKS: Final[Mapping[TaskName, type[TaskSum]]] = {task_sum.task: task_sum for task_sum in _ALL}
assert set(TASKS) == set(TASK_NAMES)


def sum_of(chosen: ChosenTask, *, worst: int = 0) -> TaskSum:
    """Return a fresh sum of a net's result; ``worst``: samples to keep for the report."""
    return kind_of(chosen)(chosen, worst=worst)


def kind_of(chosen: ChosenTask) -> type[TaskSum]:
    """Return how a result is summed."""
    is_single = chosen.task == "embedding" and len(chosen.outputs) == 1
    if chosen.is_sequence:
        return SequenceTask
    return NeighbourTask if is_single else TASKS[chosen.task]


def slice_sum_of(chosen: ChosenTask) -> TaskSum:
    """Return a fresh sum for a slice: without the ranking, which takes memory and is not shown for slices."""
    return ClassificationTask(chosen, wants_ranking=False) if chosen.task == "classification" else sum_of(chosen)
