"""Adding a product's bias, with a gradient that is summed in float32 whatever the product computes in."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from caffe_import.tf_graph.operations.own_gradient import own_gradient


def add_bias(outputs: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return ``outputs`` (..., C) plus ``bias`` (C,), both of one dtype.

    TensorFlow's CPU kernel adds up a bfloat16 bias's gradient in bfloat16: 102,400 terms of 0.01 gave 8.
    """
    if outputs.dtype == tf.float32:
        return tf.nn.bias_add(outputs, bias)

    @own_gradient
    def added(x: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(of_sum: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            of_bias = tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(of_sum, tf.float32))
            return of_sum, tf.cast(of_bias, b.dtype)

        return tf.nn.bias_add(x, b), gradient

    return added(outputs, bias)


def add_bias_to_channels(outputs: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return ``outputs`` (N, C, spatial...) plus ``bias`` (C,), both of one dtype."""
    spread = (bias.shape[0], *(1,) * (outputs.shape.rank - 2))
    if outputs.dtype == tf.float32:
        return outputs + tf.reshape(bias, spread)
    # The gradient of a broadcast sum would be added up in 16 bits.
    wide = tf.cast(outputs, tf.float32) + tf.reshape(tf.cast(bias, tf.float32), spread)
    return tf.cast(wide, outputs.dtype)
