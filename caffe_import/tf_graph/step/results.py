"""Results of a training step's graphs: dataclasses that TensorFlow flattens and packs as tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import tensorflow as tf

from caffe_import.net.debug_info import n_pass_values
from caffe_import.tf_graph.step.one_pass import Pass, PassGraph


class _TensorRecord:
    """Base of dataclasses of tensors, by TensorFlow's protocol. An absent field is ``()``: None would be a value."""

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, ...]]:
        return (), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    @classmethod
    def __tf_unflatten__(cls, _metadata: tuple[()], content: tuple[Any, ...]) -> Self:
        return cls(*content)


@dataclass(frozen=True)
class StepReports(_TensorRecord):
    """Reports of one step; after a run the steps are the first axis of each.

    Attributes:
        loss: Float32: total weighted loss, mean over the passes.
        outputs: Output blob -> its content in the step's last pass.
        n_rows: Blob that an HDF5Output layer takes -> int32: rows of the output that are not padding.
        debug: The arrays of ``StepDebug``, without an update the first; absent unless the solver asks for them.
        norm: Float32: L2 norm of the gradient before clipping; absent without an update.
        scale: Float32: the loss scale that the step began with; absent where the loss is not scaled.
        is_made: Bool: is every gradient finite, so that the update is made? Absent where the loss is not scaled.
    """

    loss: Any
    outputs: Mapping[str, Any]
    n_rows: Mapping[str, Any]
    debug: Any = ()
    norm: Any = ()
    scale: Any = ()
    is_made: Any = ()

    @classmethod
    def of(cls, step_pass: Pass, *of_update: Any) -> Self:
        """Return the reports of a step from its passes; ``of_update`` has the fields from ``debug`` on."""
        return cls(step_pass.loss, step_pass.outputs, step_pass.n_rows, *of_update)


@dataclass(frozen=True)
class StepResult(_TensorRecord):
    """State and reports after some steps.

    Attributes:
        params: One vector, or on several devices pieces.
        history: Pieces of each slot.
        layer_state: For the next step, as ``carried_state``.
        reports: Of the steps.
        next_scale: Loss scale and good steps of the next step; absent where the loss is not scaled.
    """

    params: Any
    history: Any
    layer_state: Mapping[str, Any]
    reports: StepReports
    next_scale: Any = ()


@dataclass(frozen=True)
class GradientResult(_TensorRecord):
    """Gradient, state and reports of one step's passes, without the update.

    Attributes:
        gradient: Sum over the passes before clipping and decay, 0 for statistics; in the form of ``params``.
        params: The parameters with the statistics that layers moved, as in ``StepResult``.
        layer_state: For the next step.
        reports: Of the passes.
    """

    gradient: Any
    params: Any
    layer_state: Mapping[str, Any]
    reports: StepReports


def report_specs(passes: PassGraph, iter_size: int, *, is_scaled: bool) -> StepReports:
    """Return shape and type of each report of one step."""
    net, number = passes.net, tf.TensorSpec((), tf.float32)
    debug_shapes = [(iter_size, n_pass_values(net)), (2, len(net.params.entries))] if passes.with_debug else []
    return StepReports(
        loss=number,
        outputs={name: tf.TensorSpec(net.blob_shapes[name], tf.float32) for name in passes.reported()},
        n_rows={name: tf.TensorSpec((), tf.int32) for name in passes.row_counts()},
        debug=tuple(tf.TensorSpec(shape, tf.float32) for shape in debug_shapes),
        norm=number,
        scale=number if is_scaled else (),
        is_made=tf.TensorSpec((), tf.bool) if is_scaled else (),
    )
