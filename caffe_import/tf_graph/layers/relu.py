"""How TensorFlow computes ReLU."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.relu import ReLUOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("ReLU")
def emit_relu(request: EmitRequest) -> Emission:
    """Both kernels have Caffe's derivative at zero: 0, or the negative slope."""
    options = request.layer.definition.options
    assert isinstance(options, ReLUOptions)
    bottom = request.bottoms[0]
    if options.negative_slope == 0:
        return Emission((bottom.like(tf.nn.relu(bottom.at_hand)),))
    return Emission((bottom.like(tf.nn.leaky_relu(bottom.at_hand, options.negative_slope)),))
