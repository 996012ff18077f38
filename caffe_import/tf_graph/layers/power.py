"""Power in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.power import PowerOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Power")
def emit_power(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, PowerOptions)
    bottom = request.bottoms[0]
    x = bottom.at_hand
    if options.power * options.scale == 0:
        # Caffe sets the gradient to zero here; x * 0 would make NaN of an infinity.
        constant = tf.constant(1.0) if options.power == 0 else tf.pow(tf.constant(options.shift), options.power)
        top = tf.fill(tf.shape(x), constant)
    else:
        inner = options.scale * x + options.shift
        top = inner if options.power == 1 else tf.pow(inner, options.power)
    return Emission((bottom.like(top),))
