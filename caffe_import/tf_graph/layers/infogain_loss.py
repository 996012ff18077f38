"""How TensorFlow computes InfogainLoss."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import tensorflow as tf

from caffe_import.layers.infogain_loss import InfogainLossOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.class_positions import (
    counted_labels,
    loss_and_probabilities,
    scores_by_position,
    summed_loss,
)
from caffe_import.tf_graph.operations.own_gradient import own_gradient

# Caffe computes log(max(p, 1e-20)).
_LOWEST_LOG = log(1e-20)


@emitter("InfogainLoss")
def emit_infogain_loss(request: EmitRequest) -> Emission:
    """Sum the losses of the positions that count and divide."""
    options = request.layer.definition.options
    assert isinstance(options, InfogainLossOptions)
    shape = request.layer.bottom_shapes[0]
    n_classes = shape[options.axis]
    scores = scores_by_position(request.bottoms[0], shape, options.axis)
    labels, counts = counted_labels(request.bottoms[1], options.loss.ignore_label)
    matrix = request.bottoms[2].caffe if options.matrix is None else tf.constant(options.matrix)
    rows = tf.gather(tf.stop_gradient(tf.reshape(matrix, (n_classes, n_classes))), labels)
    loss = summed_loss(_losses(scores, rows), counts, options.loss, shape, options.axis)
    return loss_and_probabilities(loss, scores, shape, options.axis, len(request.layer.tops))


def _losses(scores: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return -sum_k H[label, k] log p_k for each position, (positions,); its gradient ignores the floor."""

    @own_gradient
    def run(scores: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        logs = tf.nn.log_softmax(scores)
        losses = -tf.reduce_sum(rows * tf.maximum(logs, _LOWEST_LOG), axis=1)

        def gradient(of_losses: tf.Tensor) -> tf.Tensor:
            of_scores = tf.exp(logs) * tf.reduce_sum(rows, axis=1, keepdims=True) - rows
            return of_scores * of_losses[:, tf.newaxis]

        return losses, gradient

    return run(scores)
