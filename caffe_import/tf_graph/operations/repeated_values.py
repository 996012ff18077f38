"""Values that cover some axes of a blob and are repeated over the others: the arithmetic of Scale and Bias."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob


def repeated_over(values: tf.Tensor, axis: int, blob: Blob) -> tf.Tensor:
    """Return ``values`` in a shape that broadcasts against ``blob.values``.

    Args:
        values: Its shape equals the blob's Caffe shape from ``axis`` on, for as many axes as it has.
        axis: Canonical, in Caffe's order.
        blob: The blob to be combined with.
    """
    rank = len(blob.values.shape)
    static_shape = tuple(
        -1 if extent is None else extent for extent in values.shape
    )  # a bottom's batch may be of any size
    shape = (1,) * axis + static_shape + (1,) * (rank - axis - len(static_shape))
    spread = tf.reshape(values, shape)
    return tf.transpose(spread, NCHW_TO_NHWC) if blob.is_channels_last else spread


def add_repeated(blob: Blob, values: tf.Tensor, axis: int) -> Blob:
    """Return the sum of ``blob`` and ``values`` repeated as in ``repeated_over``."""
    is_per_channel = axis == 1 and len(values.shape) == 1
    if is_per_channel and (blob.is_channels_last or len(blob.values.shape) == 2):
        # The kernel whose gradient is one pass; also what TensorFlow fuses into a convolution before it.
        return blob.wrap(tf.nn.bias_add(blob.values, values))
    return blob.wrap(blob.values + repeated_over(values, axis, blob))
