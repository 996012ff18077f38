"""Exp in TensorFlow."""

from __future__ import annotations

import math

import tensorflow as tf

from caffe_import.layers.exp import ExpOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Exp")
def emit_exp(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, ExpOptions)
    bottom = request.bottoms[0]
    # base -1 stands for e, whose logarithm is exactly 1.
    log_base = 1.0 if options.base == -1 else math.log(options.base)
    top = tf.exp(log_base * (options.scale * bottom.at_hand + options.shift))
    return Emission((bottom.like(top),))
