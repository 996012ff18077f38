"""AbsVal in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("AbsVal")
def emit_absval(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    bottom = request.bottoms[0]
    top = tf.abs(bottom.at_hand)
    return Emission((bottom.like(top),))
