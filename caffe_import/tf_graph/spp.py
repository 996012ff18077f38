"""How TensorFlow computes SPP: one pooling per level, joined in Caffe's order."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.spp import SPPOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.pooling import pool


@emitter("SPP")
def emit_spp(request: EmitRequest) -> Emission:
    """Pool each level; more than one are flattened and joined."""
    options = request.layer.definition.options
    assert isinstance(options, SPPOptions)
    inputs = request.bottoms[0].channels_last
    levels = [Blob.from_channels_last(pool(inputs, level, pooled, request)) for level, pooled in options.levels]
    if len(levels) == 1:
        return Emission((levels[0],))
    batch = request.layer.bottom_shapes[0][0]
    return Emission((Blob.from_caffe(tf.concat([tf.reshape(level.caffe, (batch, -1)) for level in levels], axis=1)),))
