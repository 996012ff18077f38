"""Reshape in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Reshape")
def emit_reshape(request: EmitRequest) -> Emission:
    """Reshape in Caffe's axis order."""
    top = tf.reshape(request.bottoms[0].caffe, request.layer.definition.top_shapes[0])
    return Emission((Blob.from_caffe(top),))
