"""How TensorFlow computes BatchNorm: its fused kernel, channels-last, with the Scale behind it as the affine part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from caffe_import.layers.batch_norm import BatchNormOptions
from caffe_import.net.layer_registry import Shape
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.fixed_weights import computed_once, in_graph

_Normalized: TypeAlias = tuple[tf.Tensor, Mapping[int, tf.Tensor]]
"""The images (N, positions..., C), and what ``Emission.param_updates`` says of the sums."""


@emitter("BatchNorm", orders_weights=True)
def emit_batch_norm(request: EmitRequest) -> Emission:
    """Normalise by the stored statistics, or by the batch's own, which are then added to the stored sums.

    With a Scale's blobs the same kernel scales, too, and the layer's own top is computed only for who asks for it.
    """
    options = request.layer.definition.options
    assert isinstance(options, BatchNormOptions)
    shape = request.layer.bottom_shapes[0]
    by = _by_stored_sums if options.use_global_stats else _by_batch
    compute = partial(by, options, request.params, request.bottoms[0], shape)
    n_channels = request.layer.definition.blobs[0].shape[0]
    plain = (np.ones(n_channels, np.float32), np.zeros(n_channels, np.float32))
    if not request.scale_params:
        outputs, updates = compute(*plain)
        return Emission((_from_images(outputs, shape),), param_updates=updates)
    factors, biases = (*request.scale_params, plain[1])[:2]
    outputs, updates = compute(factors, biases)
    top = Blob.computed_at_first_use(lambda: compute(*plain)[0])
    return Emission((top,), param_updates=updates, scaled_top=Blob.from_channels_last(outputs))


def _by_stored_sums(
    options: BatchNormOptions, sums: Sequence[tf.Tensor], bottom: Blob, shape: Shape, *affine: tf.Tensor
) -> _Normalized:
    def line(
        means: tf.Tensor, variances: tf.Tensor, weights: tf.Tensor, factors: tf.Tensor, biases: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # No batch seen yet counts as mean 0, variance 0.
        weight = tf.math.divide_no_nan(1.0, weights)
        factors = tf.math.rsqrt(variances * weight + options.eps) * factors
        return factors, biases - means * weight * factors

    factors, offsets = computed_once(line, *sums, *affine)
    if bottom.scaled is not None and len(shape) == 4:
        return bottom.scaled(factors, offsets), {}
    return tf.nn.bias_add(_as_images(bottom, shape) * in_graph(factors), in_graph(offsets)), {}


def _by_batch(
    options: BatchNormOptions,
    sums: Sequence[tf.Tensor],
    bottom: Blob,
    shape: Shape,
    factors: tf.Tensor,
    biases: tf.Tensor,
) -> _Normalized:
    # The raw operation, because tf.compat.v1.nn.fused_batch_norm raises eps to 1.001e-5, above Caffe's default.
    # Its variance output is the unbiased one, m / (m - 1) times that of the batch: what Caffe stores.
    outputs, means, variances, *_ = tf.raw_ops.FusedBatchNormV3(
        x=_as_images(bottom, shape),
        scale=factors,
        offset=biases,
        mean=tf.zeros(0),
        variance=tf.zeros(0),
        epsilon=options.eps,
        is_training=True,
    )
    fraction = options.moving_average_fraction
    sums_of_means, sums_of_variances, sums_of_weights = sums
    return outputs, {
        0: fraction * sums_of_means + tf.stop_gradient(means),
        1: fraction * sums_of_variances + tf.stop_gradient(variances),
        2: fraction * sums_of_weights + 1.0,
    }


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
