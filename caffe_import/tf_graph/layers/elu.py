"""ELU in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.elu import ELUOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("ELU")
def emit_elu(request: EmitRequest) -> Emission:
    """Element by element, in whatever axis order is at hand."""
    options = request.layer.definition.options
    assert isinstance(options, ELUOptions)
    bottom = request.bottoms[0]
    x = bottom.at_hand
    # The minimum keeps exp from overflowing in the branch that is not taken (its gradient would be NaN).
    top = tf.where(x > 0, x, options.alpha * (tf.exp(tf.minimum(x, 0.0)) - 1.0))
    return Emission((bottom.like(top),))
