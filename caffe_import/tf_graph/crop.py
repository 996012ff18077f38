"""Crop in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.crop import CropOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Crop")
def emit_crop(request: EmitRequest) -> Emission:
    """Slice in Caffe's axis order."""
    options = request.layer.definition.options
    assert isinstance(options, CropOptions)
    top = tf.slice(request.bottoms[0].caffe, options.begin, request.layer.definition.top_shapes[0])
    return Emission((Blob.from_caffe(top),))
