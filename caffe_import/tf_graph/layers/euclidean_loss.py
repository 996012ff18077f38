"""How TensorFlow computes EuclideanLoss."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob, batch_divisor
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("EuclideanLoss")
def emit_euclidean_loss(request: EmitRequest) -> Emission:
    """Half the sum of squared differences over N, in Caffe's order unless both bottoms are channels-last."""
    # Caffe compares value by value in memory, so shapes may differ; then only its own order pairs the right values.
    first_shape, second_shape = request.layer.bottom_shapes
    keep_order = first_shape == second_shape and all(bottom.is_channels_last for bottom in request.bottoms)
    values = [bottom.channels_last if keep_order else bottom.caffe for bottom in request.bottoms]
    n_samples = batch_divisor(values[0]) if first_shape else 1.0
    first, second = (tf.reshape(tensor, (-1,)) for tensor in values)
    return Emission((Blob.from_caffe(tf.nn.l2_loss(first - second) / n_samples),))
