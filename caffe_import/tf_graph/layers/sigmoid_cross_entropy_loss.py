"""How TensorFlow computes SigmoidCrossEntropyLoss: its stable fused form is Caffe's."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.net.shapes.loss_options import LossOptions
from caffe_import.tf_graph.data_layout import Blob, batch_extent
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.class_positions import loss_divisor


@emitter("SigmoidCrossEntropyLoss")
def emit_sigmoid_cross_entropy_loss(request: EmitRequest) -> Emission:
    """Sum over the values that count and divide. Every value is a position of its own."""
    options = request.layer.definition.options
    assert isinstance(options, LossOptions)
    shape = request.layer.bottom_shapes[0]
    scores = request.bottoms[0].caffe
    targets = tf.reshape(tf.cast(request.bottoms[1].caffe, tf.float32), (-1, *shape[1:]))
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)
    counts = None
    if options.ignore_label is not None:
        counts = tf.not_equal(tf.cast(targets, tf.int32), options.ignore_label)
        losses = tf.where(counts, losses, 0.0)
    n_samples = batch_extent(scores)
    n_values = n_samples * prod(shape[1:])
    loss = Blob.from_caffe(tf.reduce_sum(losses) / loss_divisor(options, n_values, n_samples, counts))
    if len(request.layer.definition.top_shapes) == 1:
        return Emission((loss,))
    return Emission((loss, Blob.from_caffe(tf.stop_gradient(tf.sigmoid(scores)))))
