"""Clip in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.clip import ClipOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Clip")
def emit_clip(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, ClipOptions)
    bottom = request.bottoms[0]
    top = tf.clip_by_value(bottom.at_hand, options.min, options.max)
    return Emission((bottom.like(top),))
