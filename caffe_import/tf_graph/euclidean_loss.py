"""How TensorFlow computes EuclideanLoss."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.euclidean_loss import EuclideanLossOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("EuclideanLoss")
def emit_euclidean_loss(request: EmitRequest) -> Emission:
    """Half the sum of squared differences over N."""
    options = request.layer.definition.options
    assert isinstance(options, EuclideanLossOptions)
    first, second = (tf.reshape(bottom.caffe, (-1,)) for bottom in request.bottoms)
    return Emission((Blob.from_caffe(tf.nn.l2_loss(first - second) / float(options.n_samples)),))
