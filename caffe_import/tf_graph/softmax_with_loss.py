"""How TensorFlow computes SoftmaxWithLoss: the fused cross entropy, with Caffe's floor under the logarithm."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import tensorflow as tf

from caffe_import.layers.softmax_with_loss import SoftmaxWithLossOptions
from caffe_import.tf_graph.class_positions import (
    blob_from_positions,
    labels_by_position,
    loss_divisor,
    scores_by_position,
)
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter

# Caffe computes -log(max(p, FLT_MIN)).
_GREATEST_LOSS = float(-np.log(np.finfo(np.float32).tiny))


@emitter("SoftmaxWithLoss")
def emit_softmax_with_loss(request: EmitRequest) -> Emission:
    """Sum the losses of the positions that count and divide."""
    options = request.layer.definition.options
    assert isinstance(options, SoftmaxWithLossOptions)
    shape = request.layer.bottom_shapes[0]
    scores = scores_by_position(request.bottoms[0], shape, options.axis)
    labels = labels_by_position(request.bottoms[1])
    counts = None
    if options.loss.ignore_label is not None:
        counts = tf.not_equal(labels, options.loss.ignore_label)
        # An ignored label need not be a class; the kernel refuses such.
        labels = tf.where(counts, labels, 0)
    losses = _floored(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
    if counts is not None:
        losses = tf.where(counts, losses, 0.0)
    divisor = loss_divisor(options.loss, prod(shape) // shape[options.axis], prod(shape[: options.axis]), counts)
    loss = Blob.from_caffe(tf.reduce_sum(losses) / divisor)
    if len(request.layer.definition.top_shapes) == 1:
        return Emission((loss,))
    probabilities = tf.stop_gradient(tf.nn.softmax(scores))
    return Emission((loss, blob_from_positions(probabilities, shape, options.axis)))


@tf.custom_gradient
def _floored(losses: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Cap losses where Caffe's logarithm is floored; its gradient, probability - onehot, does not know the floor."""
    return tf.minimum(losses, _GREATEST_LOSS), lambda gradient: gradient
