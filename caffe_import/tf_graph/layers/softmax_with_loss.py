"""How TensorFlow computes SoftmaxWithLoss: the fused cross entropy, with Caffe's floor under the logarithm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from caffe_import.layers.softmax_with_loss import SoftmaxWithLossOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.class_positions import (
    counted_labels,
    loss_and_probabilities,
    scores_by_position,
    summed_loss,
)
from caffe_import.tf_graph.operations.own_gradient import own_gradient

# Caffe computes -log(max(p, FLT_MIN)).
_GREATEST_LOSS = float(-np.log(np.finfo(np.float32).tiny))


@emitter("SoftmaxWithLoss")
def emit_softmax_with_loss(request: EmitRequest) -> Emission:
    """Sum the losses of the positions that count and divide."""
    options = request.layer.definition.options
    assert isinstance(options, SoftmaxWithLossOptions)
    shape = request.layer.bottom_shapes[0]
    scores = scores_by_position(request.bottoms[0], shape, options.axis)
    labels, counts = counted_labels(request.bottoms[1], options.loss.ignore_label)
    losses = _floored(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
    loss = summed_loss(losses, counts, options.loss, shape, options.axis)
    return loss_and_probabilities(loss, scores, shape, options.axis, len(request.layer.tops))


@own_gradient
def _floored(losses: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Cap losses where Caffe's logarithm is floored; its gradient, probability - onehot, ignores the floor."""
    return tf.minimum(losses, _GREATEST_LOSS), lambda gradient: gradient
