"""How TensorFlow computes ReLU6."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("ReLU6")
def emit_relu6(request: EmitRequest) -> Emission:
    """One kernel; its derivative at 0 and at 6 is 0."""
    bottom = request.bottoms[0]
    return Emission((bottom.like(tf.nn.relu6(bottom.at_hand)),))
