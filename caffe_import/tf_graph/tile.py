"""Tile in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.tile import TileOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Tile")
def emit_tile(request: EmitRequest) -> Emission:
    """Repeat in Caffe's axis order."""
    options = request.layer.definition.options
    assert isinstance(options, TileOptions)
    multiples = [1] * len(request.layer.bottom_shapes[0])
    multiples[options.axis] = options.tiles
    return Emission((Blob.from_caffe(tf.tile(request.bottoms[0].caffe, multiples)),))
