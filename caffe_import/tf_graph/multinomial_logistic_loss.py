"""MultinomialLogisticLoss in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter

LOG_THRESHOLD = 1e-20


@emitter("MultinomialLogisticLoss")
def emit_multinomial_logistic_loss(request: EmitRequest) -> Emission:
    """Gather the true class's probability; Caffe's gradient is -1 / (N max(p, 1e-20)), on the floor too."""
    n_samples = request.layer.bottom_shapes[0][0]
    probabilities = tf.reshape(request.bottoms[0].caffe, [n_samples, -1])
    labels = tf.cast(tf.reshape(request.bottoms[1].caffe, [n_samples]), tf.int32)
    chosen = tf.gather(probabilities, labels, batch_dims=1)
    floored = chosen + tf.stop_gradient(tf.maximum(chosen, LOG_THRESHOLD) - chosen)
    return Emission((Blob.from_caffe(-tf.reduce_sum(tf.math.log(floored)) / n_samples),))
