"""From a net's blobs to what tasks count: the activation, and what the answers should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from deepspark_ops.evaluate.scores import softmax
from deepspark_ops.evaluate.tasks.choice import ChosenTask

Array = npt.NDArray[Any]


def wanted_blobs(tasks: Sequence[ChosenTask]) -> tuple[str, ...]:
    """Return the blobs needed from a forward pass: the outputs, and targets computed by the net from data."""
    names = [name for task in tasks for name in task.outputs]
    names += [task.target for task in tasks if task.target is not None and not task.is_target_fed]
    return tuple(dict.fromkeys(names))


def activated(values: Array, task: ChosenTask) -> Array:
    """Return a blob after the activation of the task, (n_samples, ...), the classes on axis 1.

    Classes and labels are (n, n_classes) probabilities in float64. The scores of a segmentation are not activated: the
    greatest score and the greatest probability belong to the same class.
    """
    if task.class_axis != 1:
        samples = values.reshape(-1, *values.shape[task.n_batch_axes :])
        values = np.moveaxis(samples, task.axis_in_sample + 1, 1)
    if task.task == "classification":
        rows = values.reshape(len(values), task.n_classes)
        return rows.astype(np.float64) if task.activation == "none" else softmax(rows)
    return sigmoid(values) if task.activation == "sigmoid" else values


def sigmoid(values: Array) -> npt.NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)), computed in float64 without overflow.

    Example:
        >>> sigmoid(np.array([0.0, -1000.0, 1000.0])).tolist()
        [0.5, 0.0, 1.0]
    """
    wide = np.asarray(values, np.float64)
    power = np.exp(-np.abs(wide))
    probabilities: npt.NDArray[np.float64] = np.where(wide >= 0, 1.0, power) / (1.0 + power)
    return probabilities


def targets_of(
    task: ChosenTask, values: Mapping[str, Array], stored: Mapping[str, Array], feeds: Mapping[str, Array], count: int
) -> Array:
    """Return what the answers of a batch of ``count`` samples should be, (count, ...).

    Class labels are taken from ``stored``, whatever their dtype; numbers and pictures from ``feeds``, after the
    transform; targets that the net computes from ``values``.

    Raises:
        NetError: The net has nothing to compare with.
    """
    target = require_target(task)
    if not task.is_target_fed:
        return values[target][:count]
    if task.task == "classification":
        return stored[target].reshape(count)
    return feeds[target][:count]


_EXPECTED: Final = {"classification": "labels", "embedding": "similarities (1 for a similar pair, 0 for another)"}


def require_target(task: ChosenTask) -> str:
    """Return the blob with what the answers should be.

    Raises:
        NetError: The net has none.
    """
    if task.target is None:
        expected = _EXPECTED.get(task.task, "expected answers")
        blobs = " and ".join(map(repr, task.outputs))
        msg = (
            f"{task.found_by}: the net has no {expected}, so blob {blobs} cannot be scored; the data layer "
            f"needs a second top with the {expected}, or the option target_blob names a blob with the {expected}"
        )
        if task.task == "regression" and task.n_values > 1:
            msg += (
                f". If {blobs} has {task.n_values} scores of classes, give task=classification; if it is a vector whose"
                " distances count, as of a siamese or triplet net, give task=embedding: the target of one output_blob"
                " is the class of the sample, the target of two is 1 for a similar pair and 0 for another"
            )
        raise NetError(msg)
    return task.target
