"""Loss scaling in the graph of training steps; the rule is ``caffe_import.devices.loss_scale``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from caffe_import.devices.loss_scale import LossScale, StepScales, next_scale


class Scaling(NamedTuple):
    """Scaling state in the loop over steps; an empty tuple where the loss is not scaled.

    Attributes:
        scale: Float32 scalar, of the next step.
        good_steps: Int64 scalar, as ``LossScale.good_steps``.
        n_skipped: Int64 scalar: steps of this call without an update.
    """

    scale: tf.Tensor
    good_steps: tf.Tensor
    n_skipped: tf.Tensor

    def advanced(self, is_finite: tf.Tensor) -> Scaling:
        """Return the scaling after a step."""
        scale, good_steps = next_scale(self.scale, self.good_steps, is_finite, tf.where)
        return Scaling(scale, good_steps, self.n_skipped + tf.cast(~is_finite, tf.int64))


def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return whether all values are numbers, bool scalar."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])


def chosen(is_made: tf.Tensor, new_values: Any, old_values: Any) -> Any:
    """Return ``new_values`` if the step is made, else ``old_values``: one structure of tensors each."""
    return tf.nest.map_structure(lambda new, old: tf.where(is_made, new, old), new_values, old_values)


SCALE_SPECS: Mapping[str, tf.TensorSpec] = {
    "loss_scale": tf.TensorSpec((), tf.float32),
    "good_steps": tf.TensorSpec((), tf.int64),
}


def scale_arguments(scale: LossScale | None) -> dict[str, Any]:
    """Return a scale as fields of ``StepArguments``; none where the loss is not scaled."""
    if scale is None:
        return {}
    return {"loss_scale": np.float32(scale.scale), "good_steps": np.int64(scale.good_steps)}


def as_numpy(value: Any) -> Any:
    """Return a tensor's numbers; an array stays unchanged."""
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else value.numpy()


def scales_of_run(next_scale: Sequence[Any], scales: Any, is_made: Any) -> tuple[LossScale, StepScales]:
    """Return the next scale and the scales of each step, from those fields of ``StepResult`` and ``StepReports``."""
    scale, good_steps, begun, updated = map(as_numpy, (*next_scale, scales, is_made))
    end_scales = np.append(begun, scale)[1:] if len(begun) else begun
    return LossScale(float(scale), int(good_steps)), StepScales(begun, updated, end_scales)
