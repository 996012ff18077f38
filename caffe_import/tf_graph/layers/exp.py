"""Exp in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.shapes.scaled_base import ScaledBase
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Exp")
def emit_exp(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, ScaledBase)
    bottom = request.bottoms[0]
    top = tf.exp(options.log_base * (options.scale * bottom.at_hand + options.shift))
    return Emission((bottom.like(top),))
