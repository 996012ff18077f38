"""HingeLoss in TensorFlow."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.layers.hinge_loss import HingeLossOptions
from caffe_import.tf_graph.data_layout import Blob, batch_divisor
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("HingeLoss")
def emit_hinge_loss(request: EmitRequest) -> Emission:
    """max(0, 1 - s x), s = +1 for the true class and -1 for others, summed (or its squares) and divided by N."""
    options = request.layer.definition.options
    assert isinstance(options, HingeLossOptions)
    shape = request.layer.bottom_shapes[0]
    scores = tf.reshape(request.bottoms[0].caffe, [-1, prod(shape[1:])])
    labels = tf.cast(tf.reshape(request.bottoms[1].caffe, [-1]), tf.int32)
    sign = tf.one_hot(labels, scores.shape[1], on_value=-1.0, off_value=1.0)
    hinge = tf.nn.relu(1.0 + sign * scores)
    loss = tf.reduce_sum(tf.square(hinge) if options.squared else hinge) / batch_divisor(scores)
    return Emission((Blob.from_caffe(loss),))
