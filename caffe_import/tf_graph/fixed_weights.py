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


class WeightCut:
    """The cut of a graph between the values of weights alone and the passes that read the values."""

    def __init__(self, weights: Sequence[tf.Tensor]) -> None:
        """Begin with the weights themselves before the cut."""
        self._read: dict[int, tf.Tensor] = {}
        self._before: dict[int, tf.Tensor] = {}
        self.add_before(weights)

    def is_before(self, tensor: tf.Tensor) -> bool:
        """Return whether the tensor follows from the weights alone."""
        return id(tensor) in self._before

    def add_before(self, tensors: Sequence[tf.Tensor]) -> None:
        """Note tensors that were computed from tensors before the cut."""
        self._before.update((id(tensor), tensor) for tensor in tensors)

    def pass_reads(self, tensor: tf.Tensor) -> None:
        """Note that a pass reads a tensor."""
        self._read[id(tensor)] = tensor

    @property
    def values(self) -> list[tf.Tensor]:
        """The tensors that the passes read, in the order of their first use."""
        return list(self._read.values())


_CUT: ContextVar[WeightCut | None] = ContextVar("cut", default=None)


@contextmanager
def cut_behind(weights: Sequence[tf.Tensor]) -> Iterator[WeightCut]:
    """Take ``weights``, tensors of the graph that the block traces, as fixed; yield the cut behind their values."""
    cut = WeightCut(weights)
    token = _CUT.set(cut)
    try:
        yield cut
    finally:
        _CUT.reset(token)


def is_fixed(*weights: Any) -> bool:
    """Return whether a graph is traced and all weights have values already, or are before the graph's cut."""
    return not tf.executing_eagerly() and all(
        isinstance(weight, np.ndarray) or (isinstance(weight, tf.Tensor) and _has_value(weight)) for weight in weights
    )


def _has_value(weight: tf.Tensor) -> bool:
    cut = _CUT.get()
    return not tf.is_symbolic_tensor(weight) or (cut is not None and cut.is_before(weight))


def computed_once(compute: Callable[..., Any], *weights: Any) -> Any:
    """Return ``compute(*weights)``: with fixed weights the values, else operations.

    The values are no part of the passes yet: ``in_graph`` puts them there.
    """
    if not is_fixed(*weights):
        return compute(*weights)
    if (cut := _CUT.get()) is not None:
        values = compute(*weights)
        cut.add_before(tf.nest.flatten(values))
        return values
    with tf.init_scope():
        return compute(*weights)


def in_graph(value: tf.Tensor | Vector) -> tf.Tensor:
    """Return a weight or a result of ``computed_once`` for an operation of a pass: a small value as a constant."""
    if not is_fixed(value):
        return value
    if tf.is_symbolic_tensor(value) and (cut := _CUT.get()) is not None:
        cut.pass_reads(value)
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
