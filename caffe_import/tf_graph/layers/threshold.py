"""Threshold in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.threshold import ThresholdOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Threshold")
def emit_threshold(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, ThresholdOptions)
    bottom = request.bottoms[0]
    top = tf.cast(bottom.at_hand > options.threshold, tf.float32)
    return Emission((bottom.like(top),))
