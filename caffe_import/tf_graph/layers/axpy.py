"""How TensorFlow computes Axpy."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Axpy")
def emit_axpy(request: EmitRequest) -> Emission:
    """Multiply and add in the axis order of x."""
    factors, x, y = request.bottoms
    channels = request.layer.bottom_shapes[1][1]
    per_channel = (-1, 1, 1, channels) if x.is_channels_last else (-1, channels, 1, 1)
    added = y.channels_last if x.is_channels_last else y.caffe
    return Emission((x.wrap(tf.reshape(factors.values, per_channel) * x.values + added),))
