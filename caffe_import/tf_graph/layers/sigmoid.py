"""How TensorFlow computes Sigmoid."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Sigmoid")
def emit_sigmoid(request: EmitRequest) -> Emission:
    """Apply it to the form at hand."""
    bottom = request.bottoms[0]
    return Emission((bottom.like(tf.sigmoid(bottom.at_hand)),))
