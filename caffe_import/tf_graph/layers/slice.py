"""Slice in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.slice import SliceOptions
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Slice")
def emit_slice(request: EmitRequest) -> Emission:
    """Split along the axis, in the bottom's axis order."""
    options = request.layer.definition.options
    assert isinstance(options, SliceOptions)
    bottom = request.bottoms[0]
    axis = NCHW_TO_NHWC.index(options.axis) if bottom.is_channels_last else options.axis
    parts = tf.split(bottom.values, list(options.sizes), axis)
    wrap = Blob.from_channels_last if bottom.is_channels_last else Blob.from_caffe
    return Emission(tuple(wrap(part) for part in parts))
