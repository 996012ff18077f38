"""A Keras tensor in either axis order, as ``tf_graph.data_layout.Blob`` is for TensorFlow's graph.

Keras computes images as (N, H, W, C). A layer that needs Caffe's order converts the tensor.
"""

from __future__ import annotations

from typing import Any

import keras

NCHW_TO_NHWC = (0, 2, 3, 1)
NHWC_TO_NCHW = (0, 3, 1, 2)


class Value:
    """A blob's values; each conversion is computed once."""

    __slots__ = ("_caffe", "_last")

    def __init__(self, *, caffe: Any = None, last: Any = None) -> None:
        """Hold one form or both: Caffe's order of any rank, or (N, H, W, C)."""
        self._caffe = caffe
        self._last = last

    @property
    def is_last(self) -> bool:
        """Is (N, H, W, C) the order of ``values``?"""
        return self._last is not None

    @property
    def caffe(self) -> Any:
        """The tensor in Caffe's order."""
        if self._caffe is None:
            self._caffe = keras.ops.transpose(self._last, NHWC_TO_NCHW)
        return self._caffe

    @property
    def last(self) -> Any:
        """The tensor in (N, H, W, C) order; only for rank 4."""
        if self._last is None:
            self._last = keras.ops.transpose(self._caffe, NCHW_TO_NHWC)
        return self._last

    @property
    def values(self) -> Any:
        """The tensor in its stored order, for elementwise operations; pass the result to ``wrap``."""
        return self._last if self._last is not None else self._caffe

    def wrap(self, tensor: Any) -> Value:
        """Wrap a tensor that has the axis order of this value."""
        return Value(last=tensor) if self._last is not None else Value(caffe=tensor)


def in_one_order(values: list[Value]) -> tuple[list[Any], bool]:
    """Return the tensors in a single order, and whether the order is channels last (any tensor has channels last)."""
    is_last = any(value.is_last for value in values)
    return [value.last if is_last else value.caffe for value in values], is_last


def in_order(tensor: Any, *, is_last: bool) -> Value:
    """Wrap a tensor of a known order."""
    return Value(last=tensor) if is_last else Value(caffe=tensor)
