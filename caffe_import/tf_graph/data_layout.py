"""The one place where axis orders change: Caffe's (N, C, H, W) and TensorFlow's CPU-fast (N, H, W, C), on every device.

On a GPU TensorFlow's own layout optimizer turns NHWC back if the optimizer expects NCHW to be faster; not measured.

A ``Blob`` is a tensor that is converted to either order when needed. An emitter takes and returns the kernel's order;
consecutive layers of the same order then cost no transposition.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

NCHW_TO_NHWC = (0, 2, 3, 1)
NHWC_TO_NCHW = (0, 3, 1, 2)
OIHW_TO_HWIO = (2, 3, 1, 0)


def batch_extent(tensor: tf.Tensor) -> int | tf.Tensor:
    """Return the extent of the first axis: a number, or an int32 scalar where only the run knows it (after Filter)."""
    return tf.shape(tensor)[0] if tensor.shape[0] is None else tensor.shape[0]


def batch_divisor(tensor: tf.Tensor) -> float | tf.Tensor:
    """Return ``batch_extent`` as what a loss is divided by."""
    extent = batch_extent(tensor)
    return float(extent) if isinstance(extent, int) else tf.cast(extent, tf.float32)


class Blob:
    """A tensor of Caffe shape ``shape``; rank 4 also has a channels-last form. Conversions are made once, casts too.

    Not thread-safe while a graph is traced (tracing is single-threaded).

    Attributes:
        scaled: Takes a factor and an offset of each channel and returns the scaled blob, (N, H, W, C), by the kernel
            that computes the blob itself; None where no kernel can.
    """

    __slots__ = ("_caffe", "_casts", "_channels_last", "_compute", "scaled")

    def __init__(
        self,
        caffe: tf.Tensor | None,
        channels_last: tf.Tensor | None = None,
        compute: Callable[[], tf.Tensor] | None = None,
        scaled: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        """Hold one form or both; use ``from_caffe``, ``from_channels_last`` and ``computed_at_first_use``."""
        self._caffe = caffe
        self._channels_last = channels_last
        self._compute = compute
        self.scaled = scaled
        self._casts: dict[tf.DType, Blob] = {}

    @classmethod
    def from_caffe(cls, tensor: tf.Tensor) -> Blob:
        """Wrap a tensor in Caffe's axis order, any rank."""
        return cls(tensor)

    @classmethod
    def from_channels_last(cls, tensor: tf.Tensor) -> Blob:
        """Wrap a rank-4 tensor in (N, H, W, C) order."""
        return cls(None, tensor)

    @classmethod
    def computed_at_first_use(
        cls, compute: Callable[[], tf.Tensor], scaled: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    ) -> Blob:
        """Wrap a rank-4 tensor in (N, H, W, C) order, whose operations are in the graph only if the blob is read."""
        return cls(None, None, compute, scaled)

    @property
    def is_channels_last(self) -> bool:
        """Is (N, H, W, C) the axis order of ``values`` (element-wise layers keep it)?"""
        return self._channels_last is not None or self._compute is not None

    @property
    def caffe(self) -> tf.Tensor:
        """The tensor in Caffe's axis order."""
        if self._caffe is None:
            self._caffe = tf.transpose(self.channels_last, NHWC_TO_NCHW)
        return self._caffe

    @property
    def channels_last(self) -> tf.Tensor:
        """The tensor in (N, H, W, C) order; only for rank 4."""
        if self._channels_last is None:
            self._channels_last = self._compute() if self._compute else tf.transpose(self._caffe, NCHW_TO_NHWC)
        return self._channels_last

    @property
    def values(self) -> tf.Tensor:
        """The tensor in the present axis order, for element-wise work; wrap the result by ``wrap``."""
        return self.channels_last if self.is_channels_last else self._caffe

    @property
    def dtype(self) -> tf.DType:
        """float32, or what 16-bit arithmetic (``precision``) left."""
        return self.values.dtype

    def as_dtype(self, dtype: tf.DType) -> Blob:
        """Return the blob with values of a dtype; the blob itself if the dtype is the same."""
        if dtype == self.dtype:
            return self
        if dtype not in self._casts:
            self._casts[dtype] = self.wrap(tf.cast(self.values, dtype))
        return self._casts[dtype]

    def wrap(self, tensor: tf.Tensor) -> Blob:
        """Wrap the result of element-wise work on ``values``: same axis order as this blob."""
        return Blob.from_channels_last(tensor) if self.is_channels_last else Blob.from_caffe(tensor)
