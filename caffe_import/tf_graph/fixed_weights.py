"""Values of weights alone: where a net's weights are fixed, computed once, while the graph is traced.

Weights are fixed where a graph is traced with arrays in place of tensors: ``predict.FixedForward``. In every other
graph the weights are arguments, and their values are computed in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import tensorflow as tf

from caffe_import.net.param_layout import Vector

MOST_CONSTANT_BYTES: Final = 256 * 2**10
"""Largest value that becomes a constant of the graph. TensorFlow orders a constant for oneDNN's kernels once, and has
the constant in memory about five times: larger values stay tensors beside the graph."""

Keep = Callable[[tf.Tensor], tf.Tensor]
_KEEP: ContextVar[Keep | None] = ContextVar("keep", default=None)


def is_fixed(*weights: Any) -> bool:
    """Return whether a graph is traced and all weights have values already."""
    return not tf.executing_eagerly() and all(
        isinstance(weight, np.ndarray) or (isinstance(weight, tf.Tensor) and not tf.is_symbolic_tensor(weight))
        for weight in weights
    )


def computed_once(compute: Callable[..., Any], *weights: Any) -> Any:
    """Return ``compute(*weights)``: with fixed weights the values, else operations.

    The values are no part of the graph yet: ``in_graph`` puts them there.
    """
    if not is_fixed(*weights):
        return compute(*weights)
    with tf.init_scope():
        return compute(*weights)


def in_graph(value: tf.Tensor | Vector) -> tf.Tensor:
    """Return a weight or a result of ``computed_once`` for an operation of the graph: a small value as a constant."""
    if not is_fixed(value):
        return value
    if np.prod(value.shape) * tf.as_dtype(value.dtype).size <= MOST_CONSTANT_BYTES:
        return tf.constant(np.asarray(value))
    with tf.init_scope():
        value = tf.constant(value) if isinstance(value, np.ndarray) else value  # a copy: the caller may write the array
    keep = _KEEP.get()
    return value if keep is None else keep(value)


@contextmanager
def large_values_kept_by(keep: Keep) -> Iterator[None]:
    """Have ``keep`` return what the graphs of the block read in place of a value that is no constant."""
    token = _KEEP.set(keep)
    try:
        yield
    finally:
        _KEEP.reset(token)
