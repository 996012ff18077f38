"""MultinomialLogisticLoss in TensorFlow."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob, batch_divisor
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter

LOG_THRESHOLD = 1e-20


@emitter("MultinomialLogisticLoss")
def emit_multinomial_logistic_loss(request: EmitRequest) -> Emission:
    """Gather the true class's probability; Caffe's gradient is -1 / (N max(p, 1e-20)), on the floor too."""
    shape = request.layer.bottom_shapes[0]
    probabilities = tf.reshape(request.bottoms[0].caffe, [-1, prod(shape[1:])])
    labels = tf.cast(tf.reshape(request.bottoms[1].caffe, [-1]), tf.int32)
    chosen = tf.gather(probabilities, labels, batch_dims=1)
    floored = chosen + tf.stop_gradient(tf.maximum(chosen, LOG_THRESHOLD) - chosen)
    return Emission((Blob.from_caffe(-tf.reduce_sum(tf.math.log(floored)) / batch_divisor(probabilities)),))
