"""Values of weights alone, which many passes read: computed once and not in each pass.

Weights are fixed where a graph is traced with arrays in place of tensors: ``predict.FixedForward``. The values are
computed while the graph is traced. In a graph that is cut behind the values of weights, ``predict.PreparedForward``,
each vector of weights has the values computed once, by the part before the cut. In every other graph the weights are
arguments, and their values are computed in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


_BEFORE_CUT: ContextVar[dict[int, tf.Tensor] | None] = ContextVar("before_cut", default=None)
"""By ``id``: tensors of the graph that is being traced that follow from the weights alone."""


@contextmanager
def taken_as_fixed(weights: Sequence[tf.Tensor]) -> Iterator[None]:
    """Take ``weights``, tensors of the graph that the block traces, as fixed: ``values_of_weights`` cuts the graph."""
    token = _BEFORE_CUT.set({id(tensor): tensor for tensor in weights})
    try:
        yield
    finally:
        _BEFORE_CUT.reset(token)


def values_of_weights(params: tf.Tensor, results: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the tensors of a graph that follow from ``params`` alone and that other operations or ``results`` read."""
    constants: set[tf.Operation] = set()
    of_weights = {params.op}
    values: dict[int, tf.Tensor] = {}
    for operation in params.graph.get_operations():  # each behind the makers of its inputs
        inputs = list(operation.inputs)
        makers = {tensor.op for tensor in inputs}
        is_pure = not operation.op_def.is_stateful and operation.type != "Placeholder"
        if is_pure and makers <= constants:
            constants.add(operation)
        elif is_pure and makers <= constants | of_weights:
            of_weights.add(operation)
        elif operation not in of_weights:
            values.update((id(tensor), tensor) for tensor in inputs if tensor.op in of_weights)
    values.update((id(tensor), tensor) for tensor in results if tensor.op in of_weights)
    return list(values.values())


def is_fixed(*weights: Any) -> bool:
    """Return whether a graph is traced and all weights have values already, or are before the graph's cut."""
    return not tf.executing_eagerly() and all(
        isinstance(weight, np.ndarray) or (isinstance(weight, tf.Tensor) and _has_value(weight)) for weight in weights
    )


def _has_value(weight: tf.Tensor) -> bool:
    return not tf.is_symbolic_tensor(weight) or id(weight) in (_BEFORE_CUT.get() or ())


def computed_once(compute: Callable[..., Any], *weights: Any) -> Any:
    """Return ``compute(*weights)``: with fixed weights the values, else operations.

    The values are no part of the passes yet: ``in_graph`` puts them there.
    """
    if not is_fixed(*weights):
        return compute(*weights)
    if (before_cut := _BEFORE_CUT.get()) is not None:
        values = compute(*weights)
        before_cut.update((id(tensor), tensor) for tensor in tf.nest.flatten(values))
        return values
    with tf.init_scope():
        return compute(*weights)


def in_graph(value: tf.Tensor | Vector) -> tf.Tensor:
    """Return a weight or a result of ``computed_once`` for an operation of a pass: a small value as a constant."""
    if tf.is_symbolic_tensor(value) or not is_fixed(value):
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
