"""PReLU in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.prelu import PReLUOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("PReLU")
def emit_prelu(request: EmitRequest) -> Emission:
    """Element by element; at x = 0 the slope counts, as in Caffe."""
    options = request.layer.definition.options
    assert isinstance(options, PReLUOptions)
    bottom = request.bottoms[0]
    slope = request.params[0]
    rank = len(request.layer.bottom_shapes[0])
    if not options.channel_shared and not bottom.is_channels_last:
        slope = tf.reshape(slope, [1, -1] + [1] * (rank - 2))
    x = bottom.values
    return Emission((bottom.wrap(tf.where(x > 0, x, slope * x)),))
