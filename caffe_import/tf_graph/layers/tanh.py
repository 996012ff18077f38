"""How TensorFlow computes TanH."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("TanH")
def emit_tanh(request: EmitRequest) -> Emission:
    """Apply it to the form at hand."""
    bottom = request.bottoms[0]
    return Emission((bottom.like(tf.tanh(bottom.at_hand)),))
