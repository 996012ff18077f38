"""How TensorFlow computes EuclideanLoss."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.euclidean_loss import EuclideanLossOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("EuclideanLoss")
def emit_euclidean_loss(request: EmitRequest) -> Emission:
    """Half the sum of squared differences over N, in Caffe's order unless both bottoms have the other at hand."""
    options = request.layer.definition.options
    assert isinstance(options, EuclideanLossOptions)
    # Caffe compares value by value in memory, so shapes may differ; then only its own order pairs them rightly.
    first_shape, second_shape = request.layer.bottom_shapes
    keep_order = first_shape == second_shape and all(bottom.is_channels_last for bottom in request.bottoms)
    values = [bottom.channels_last if keep_order else bottom.caffe for bottom in request.bottoms]
    first, second = (tf.reshape(tensor, (-1,)) for tensor in values)
    return Emission((Blob.from_caffe(tf.nn.l2_loss(first - second) / float(options.n_samples)),))
