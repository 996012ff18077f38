"""How TensorFlow computes LRN, channels-last, with the gradient in closed form.

``tf.nn.lrn`` is left aside: measured four times slower on one core (43 ms against 11 ms for forward and backward of
64 images of 32x32x32).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from caffe_import.layers.lrn import LRNOptions
from caffe_import.net.shapes.pooled_windows import PoolingOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.layers.pooling import average_pool
from caffe_import.tf_graph.operations.own_gradient import own_gradient
from caffe_import.tf_graph.passes.in_place import Memory, memory_gradient

_MOST_BAND_CHANNELS = 112
"""Up to here a product with a band matrix is faster than a convolution over blocks of channels (AVX-512, one core)."""
_BLOCK = 16
"""Channels of a block: oneDNN's kernels take 16 at a time."""


@emitter("LRN")
def emit_lrn(request: EmitRequest) -> Emission:
    """Divide by a power of the local mean of squares."""
    options = request.layer.definition.options
    assert isinstance(options, LRNOptions)
    return Emission((Blob.from_channels_last(_normalised(request.bottoms[0].channels_last, options)),))


def _normalised(inputs: tf.Tensor, options: LRNOptions) -> tf.Tensor:
    """Return y = x s^-beta, s = k + alpha times the local mean of x^2; (N, H, W, C)."""

    @own_gradient
    def normalise(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        s = _divisor(x, options)
        power = _negative_power(s, options.beta)
        y = x * power
        return y, lambda dy: _gradient(x, y, dy, s, power, options)

    return normalise(inputs)


def _divisor(x: tf.Tensor, options: LRNOptions) -> tf.Tensor:
    return options.k + _weighted_mean(tf.square(x), options.alpha, options)


def _gradient(
    x: tf.Tensor, y: tf.Tensor, dy: tf.Tensor, s: tf.Tensor, power: tf.Tensor, options: LRNOptions
) -> tf.Tensor:
    """Return dy s^-beta - 2 alpha beta x mean(dy y / s): the local mean is its own transpose."""
    return dy * power - x * _weighted_mean(dy * y / s, 2 * options.alpha * options.beta, options)


def _weighted_mean(values: tf.Tensor, weight: float, options: LRNOptions) -> tf.Tensor:
    """Return ``weight`` times the mean over each value's region, with zeros beyond channels and image; (N, H, W, C)."""
    n = options.local_size
    if options.region == "ACROSS_CHANNELS":
        return weight / n * _sum_of_neighbours(values, n)
    size, pad = (values.shape[1], values.shape[2]), (n - 1) // 2
    window = PoolingOptions("AVE", (n, n), (1, 1), (pad, pad), is_global=False, has_mask=False)
    return weight * average_pool(values, window, size, size)


def _sum_of_neighbours(values: tf.Tensor, n: int) -> tf.Tensor:
    """Sum each channel with its (n - 1) / 2 neighbours on both sides; channels beyond the ends count as zero."""
    channels, reach = values.shape[-1], (n - 1) // 2
    if channels <= _MOST_BAND_CHANNELS:
        band = _is_near(np.arange(channels), np.arange(channels), reach)
        return tf.reshape(tf.matmul(tf.reshape(values, (-1, channels)), tf.constant(band)), tf.shape(values))
    block = -(-max(reach, 1) // _BLOCK) * _BLOCK
    n_blocks = -(-channels // block)
    if missing := n_blocks * block - channels:
        values = tf.pad(values, [[0, 0], [0, 0], [0, 0], [0, missing]])
    kernel = _is_near(np.arange(-block, 2 * block), np.arange(block), reach).reshape(1, 3, block, block)
    blocks = tf.reshape(values, (tf.shape(values)[0], -1, n_blocks, block))
    sums = tf.nn.conv2d(blocks, tf.constant(kernel), 1, "SAME")
    return tf.reshape(sums, tf.shape(values))[..., :channels]


def _is_near(channels: np.ndarray, sums: np.ndarray, reach: int) -> np.ndarray:
    """Return 1 where a channel belongs to a sum, at most ``reach`` away, else 0; (channels, sums), float32."""
    is_near: np.ndarray = np.abs(channels[:, np.newaxis] - sums) <= reach
    return is_near.astype(np.float32)


def _negative_power(base: tf.Tensor, beta: float) -> tf.Tensor:
    """Return base^-beta; the usual beta without the three times slower general power."""
    if beta == 0.75:
        return tf.math.rsqrt(base * tf.sqrt(base))
    return tf.pow(base, -beta)


@memory_gradient("LRN", own_value_is_enough=True)
def _lrn_from_memory(memory: Memory) -> tf.Tensor:
    options = memory.layer.definition.options
    assert isinstance(options, LRNOptions)
    s = _divisor(memory.given, options)
    return _gradient(memory.given, memory.top, memory.gradient, s, _negative_power(s, options.beta), options)
