"""How TensorFlow computes SPP: one pooling per level, joined in Caffe's order."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.layers.spp import SPPOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.layers.pooling import pool


@emitter("SPP")
def emit_spp(request: EmitRequest) -> Emission:
    """Pool each level; more than one are flattened and joined."""
    options = request.layer.definition.options
    assert isinstance(options, SPPOptions)
    inputs = request.bottoms[0].channels_last
    levels = [Blob.from_channels_last(pool(inputs, level, pooled, request)) for level, pooled in options.levels]
    if len(levels) == 1:
        return Emission((levels[0],))
    channels = request.layer.bottom_shapes[0][1]
    sizes = [channels * prod(pooled) for _, pooled in options.levels]
    rows = [tf.reshape(level.caffe, (-1, size)) for level, size in zip(levels, sizes, strict=True)]
    return Emission((Blob.from_caffe(tf.concat(rows, axis=1)),))
