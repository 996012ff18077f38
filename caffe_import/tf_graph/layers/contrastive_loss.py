"""ContrastiveLoss in TensorFlow, with Caffe's gradient (the divisor is the distance plus 1e-4)."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from caffe_import.layers.contrastive_loss import ContrastiveLossOptions
from caffe_import.tf_graph.data_layout import Blob, batch_divisor
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.own_gradient import own_gradient


@emitter("ContrastiveLoss")
def emit_contrastive_loss(request: EmitRequest) -> Emission:
    """Sum over pairs divided by 2 N. Source: contrastive_loss_layer.cpp, Forward_cpu and Backward_cpu."""
    options = request.layer.definition.options
    assert isinstance(options, ContrastiveLossOptions)
    n_features = request.layer.bottom_shapes[0][1]
    a, b = (tf.reshape(bottom.caffe, [-1, n_features]) for bottom in request.bottoms[:2])
    similar = tf.cast(tf.reshape(request.bottoms[2].caffe, [-1]), tf.int32) != 0
    return Emission((Blob.from_caffe(_loss(a - b, similar, options)),))


def _loss(difference: tf.Tensor, similar: tf.Tensor, options: ContrastiveLossOptions) -> tf.Tensor:
    n_pairs = batch_divisor(difference)

    @own_gradient
    def run(difference: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        squared = tf.reduce_sum(tf.square(difference), 1)
        distance = tf.sqrt(squared)
        gap = options.margin - (squared if options.legacy else distance)
        dissimilar_loss = tf.nn.relu(gap) if options.legacy else tf.square(tf.nn.relu(gap))
        loss = tf.reduce_sum(tf.where(similar, squared, dissimilar_loss)) / (2 * n_pairs)

        def gradient(diff: tf.Tensor) -> tf.Tensor:
            push = tf.ones_like(gap) if options.legacy else gap / (distance + 1e-4)
            factor = tf.where(similar, tf.ones_like(gap), tf.where(gap > 0, -push, tf.zeros_like(gap)))
            return diff / n_pairs * factor[:, None] * difference

        return loss, gradient

    return run(difference)
