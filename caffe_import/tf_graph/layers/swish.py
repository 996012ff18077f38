"""Swish in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.swish import SwishOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Swish")
def emit_swish(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, SwishOptions)
    bottom = request.bottoms[0]
    x = bottom.at_hand
    top = x * tf.sigmoid(options.beta * x)
    return Emission((bottom.like(top),))
