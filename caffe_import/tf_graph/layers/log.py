"""Log in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.shapes.scaled_base import ScaledBase
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Log")
def emit_log(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, ScaledBase)
    bottom = request.bottoms[0]
    top = tf.math.log(options.scale * bottom.at_hand + options.shift) / options.log_base
    return Emission((bottom.like(top),))
