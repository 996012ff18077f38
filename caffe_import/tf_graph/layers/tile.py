"""Tile in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.tile import TileOptions
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Tile")
def emit_tile(request: EmitRequest) -> Emission:
    """Repeat, in the bottom's axis order."""
    options = request.layer.definition.options
    assert isinstance(options, TileOptions)
    bottom = request.bottoms[0]
    axes = NCHW_TO_NHWC if bottom.is_channels_last else tuple(range(len(request.layer.bottom_shapes[0])))
    top = tf.tile(bottom.values, [options.tiles if axis == options.axis else 1 for axis in axes])
    return Emission((Blob.from_channels_last(top) if bottom.is_channels_last else Blob.from_caffe(top),))
