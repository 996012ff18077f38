"""Reshape in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.reshape import ReshapeOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Reshape")
def emit_reshape(request: EmitRequest) -> Emission:
    """Reshape in Caffe's axis order; the axis that follows the batch is left to the run."""
    options = request.layer.definition.options
    assert isinstance(options, ReshapeOptions)
    shape = list(request.layer.definition.top_shapes[0])
    if options.open_axis is not None and options.open_axis < len(shape):
        shape[options.open_axis] = -1
    return Emission((Blob.from_caffe(tf.reshape(request.bottoms[0].caffe, shape)),))
