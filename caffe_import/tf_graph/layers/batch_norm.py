"""How TensorFlow computes BatchNorm: its fused kernel, channels-last, without the affine part."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.layers.batch_norm import BatchNormOptions
from caffe_import.net.layer_registry import Shape
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("BatchNorm")
def emit_batch_norm(request: EmitRequest) -> Emission:
    """Normalise by the stored statistics, or by the batch's own, which are then added to the stored sums."""
    options = request.layer.definition.options
    assert isinstance(options, BatchNormOptions)
    shape = request.layer.bottom_shapes[0]
    bottom = request.bottoms[0]
    inputs = _as_images(bottom, shape)
    sums_of_means, sums_of_variances, sums_of_weights = request.params
    if options.use_global_stats:
        # No batch seen yet counts as mean 0, variance 0.
        scale = tf.math.divide_no_nan(1.0, sums_of_weights)
        outputs = (inputs - sums_of_means * scale) * tf.math.rsqrt(sums_of_variances * scale + options.eps)
        return Emission((_from_images(outputs, shape),))
    n_channels = inputs.shape[3]
    # The raw operation, because tf.compat.v1.nn.fused_batch_norm raises eps to 1.001e-5, above Caffe's default.
    # Its variance output is the unbiased one, m / (m - 1) times that of the batch: what Caffe stores.
    outputs, means, variances, *_ = tf.raw_ops.FusedBatchNormV3(
        x=inputs,
        scale=tf.ones(n_channels),
        offset=tf.zeros(n_channels),
        mean=tf.zeros(0),
        variance=tf.zeros(0),
        epsilon=options.eps,
        is_training=True,
    )
    fraction = options.moving_average_fraction
    updates = {
        0: fraction * sums_of_means + tf.stop_gradient(means),
        1: fraction * sums_of_variances + tf.stop_gradient(variances),
        2: fraction * sums_of_weights + 1.0,
    }
    return Emission((_from_images(outputs, shape),), param_updates=updates)


def _as_images(blob: Blob, shape: Shape) -> tf.Tensor:
    """Return the values as (N, positions..., C), rank 4; a bottom of a single axis has a single channel."""
    if len(shape) == 4:
        return blob.channels_last
    if len(shape) == 1:
        return tf.reshape(blob.caffe, (-1, 1, 1, 1))
    flat = tf.reshape(blob.caffe, (-1, shape[1], prod(shape[2:]), 1))
    return tf.transpose(flat, (0, 2, 3, 1))


def _from_images(images: tf.Tensor, shape: Shape) -> Blob:
    if len(shape) == 4:
        return Blob.from_channels_last(images)
    return Blob.from_caffe(tf.reshape(tf.transpose(images, (0, 3, 1, 2)), (-1, *shape[1:])))
