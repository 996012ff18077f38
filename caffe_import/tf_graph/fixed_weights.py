"""Values of weights alone: where a net's weights are fixed, computed once, while the graph is traced.

Weights are fixed where a graph reads tensors that have values already: ``predict.FixedForward``. In every other graph
the weights are arguments, and their values are computed in each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tensorflow as tf

MOST_CONSTANT_BYTES: Final = 256 * 2**10
"""Largest value that becomes a constant of the graph. TensorFlow orders a constant for oneDNN's kernels once, and has
the constant in memory about five times: larger values stay tensors beside the graph."""


def is_fixed(*weights: Any) -> bool:
    """Return whether a graph is traced and all weights have values already."""
    return not tf.executing_eagerly() and all(
        isinstance(weight, np.ndarray) or (isinstance(weight, tf.Tensor) and not tf.is_symbolic_tensor(weight))
        for weight in weights
    )


def computed_once(compute: Callable[..., Any], *weights: Any) -> Any:
    """Return ``compute(*weights)``: with fixed weights the values, on the weights' device, else operations.

    The values are no part of the graph yet: ``in_graph`` puts them there.
    """
    if not is_fixed(*weights):
        return compute(*weights)
    devices = [weight.device for weight in weights if isinstance(weight, tf.Tensor)]
    with tf.init_scope(), tf.device(devices[0] if devices else None):
        return compute(*weights)


def in_graph(value: tf.Tensor) -> tf.Tensor:
    """Return a result of ``computed_once`` for an operation of the graph: a small value as a constant."""
    if is_fixed(value) and value.shape.num_elements() * value.dtype.size <= MOST_CONSTANT_BYTES:
        return tf.constant(value.numpy())
    return value
