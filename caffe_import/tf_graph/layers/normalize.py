"""How TensorFlow computes Normalize."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.normalize import NormalizeOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.repeated_values import repeated_over


@emitter("Normalize")
def emit_normalize(request: EmitRequest) -> Emission:
    """Compute scale * x / sqrt(sum of squares + eps)."""
    options = request.layer.definition.options
    assert isinstance(options, NormalizeOptions)
    bottom, scale = request.bottoms[0], request.params[0]
    x = bottom.values
    channel_axis = -1 if bottom.is_channels_last else 1
    axes = list(range(1, len(request.layer.bottom_shapes[0]))) if options.across_spatial else [channel_axis]
    squares = tf.reduce_sum(tf.square(x), axis=axes, keepdims=True)
    factors = scale if options.channel_shared else repeated_over(scale, 1, bottom)
    return Emission((bottom.wrap(factors * x * tf.math.rsqrt(squares + options.eps)),))
