"""Outputs of an exported model: evaluation's results in a net, named by blobs.

The class probabilities of a classification are called ``scores``, with ``classes`` beside them; other results have the
name of the deploy net's blob and Caffe's axis order. For a pair (embedding) one branch is exported: the branches share
weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.scores import softmax
from deepspark_ops.evaluate.tasks.answers import sigmoid
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.export.deploy_net import free_name
from deepspark_ops.export.manifest import OutputBlob

SCORES: Final = "scores"
CLASSES: Final = "classes"
_ANSWER_COLUMNS: Final = frozenset(
    "id predicted predicted_name predicted_names probability top_classes top_names top_probabilities error".split()
)
"""Other columns in a row of predictions: an output with such a name would duplicate a column."""
ROUNDING: Final = 0.1
"""Allowed difference of a rounded file's number, as a share of the largest number."""
Answers = Mapping[str, npt.NDArray[Any]]
"""Output's name -> (n, ...)."""


@dataclass(frozen=True)
class ServedOutput:
    """One output.

    Attributes:
        name: Name in the signature.
        blob: Blob of the deploy net, after the activation.
        shape: Shape of one sample's answer.
        chosen: Result of the net, as evaluation chose it.
    """

    name: str
    blob: str
    shape: Shape
    chosen: ChosenTask

    @property
    def has_classes(self) -> bool:
        """Does the model also have the output ``classes``?"""
        return self.name == SCORES and self.chosen.task == "classification"

    def contract(self) -> OutputBlob:
        """Return the manifest's entry of the output."""
        task, n_classes = self.chosen.task, self.chosen.n_classes
        return OutputBlob(name=self.name, blob=self.blob, task=task, shape=(-1, *self.shape), n_classes=n_classes)

    def expected(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the trained net's blob after the activation, (n, ...), by numpy: the numbers of each file."""
        wide = values.astype(np.float64)
        if self.chosen.activation == "sigmoid":
            wide = sigmoid(values)
        elif self.chosen.activation == "softmax":
            axis = self.chosen.class_axis
            wide = np.moveaxis(softmax(np.moveaxis(values, axis, -1)), -1, axis)
        return wide.reshape(-1, *self.shape)

    def agreement(self, actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
        """Return the share of answers in which a rounded file agrees with the trained net.

        For classes (of each sample or pixel) the most probable class must be equal; for labels yes or no. Other numbers
        of a sample may differ by ``ROUNDING`` of the largest.
        """
        task = self.chosen.task
        axis = 1 if task == "classification" else self.chosen.axis_in_sample + 1
        if task == "multi_label" or (task == "segmentation" and actual.shape[axis] == 1):
            same = (actual > 0.5) == (expected > 0.5)
        elif task in ("classification", "segmentation"):
            same = actual.argmax(axis) == expected.argmax(axis)
        else:
            off = np.abs(actual - expected).reshape(len(actual), -1).max(axis=1)
            same = off <= ROUNDING * np.abs(expected).max()
        return float(same.mean())


def served_tasks(net: NetSpec, tasks: Sequence[ChosenTask]) -> tuple[ChosenTask, ...]:
    """Return the exported results; for a pair of branches with shared weights only the first branch.

    Raises:
        ConfigError: The branches of a pair do not share weights: the net holds two models.
    """
    return tuple(_one_side(net, task) if len(task.outputs) > 1 else task for task in tasks)


def _one_side(net: NetSpec, task: ChosenTask) -> ChosenTask:
    first, second = (_params_of(net, blob) for blob in task.outputs)
    if first != second:
        layers = dict.fromkeys(f'"{net.params.entries[position].layer}"' for position in sorted(first ^ second))
        msg = (
            f'the two sides of the pair "{task.outputs[0]}" and "{task.outputs[1]}" do not share the weights of '
            f"{', '.join(layers)}: they are two models; give the layers of both sides the same param {{ name }} and "
            f"train again, or export one side by the options task regression and output_blob {task.outputs[0]}"
        )
        raise ConfigError(msg)
    return replace(task, outputs=task.outputs[:1])


def _params_of(net: NetSpec, blob: str) -> set[int]:
    """Return the positions of the parameter blobs that ``blob`` depends on."""
    needed, positions = {blob}, set()
    for layer in reversed(net.layers):
        if needed.isdisjoint(layer.tops):
            continue
        needed.update(layer.bottoms)
        positions |= {net.params.uses[layer.name, at] for at in range(len(layer.definition.blobs))}
    return positions


def served_outputs(tasks: Sequence[ChosenTask], blobs: Mapping[ChosenTask, str]) -> tuple[ServedOutput, ...]:
    """Return the outputs, the main output first; ``blobs``: result of ``served_tasks`` -> blob of the deploy net."""
    outputs: list[ServedOutput] = []
    for task in tasks:
        is_flat = task.task in ("classification", "multi_label")
        first = not outputs and task.task == "classification"
        reserved_names = {SCORES, CLASSES, *_ANSWER_COLUMNS, *(output.name for output in outputs)}
        name = SCORES if first else free_name(blobs[task], reserved_names)
        outputs.append(ServedOutput(name, blobs[task], (prod(task.shape),) if is_flat else task.shape, task))
    return tuple(outputs)
