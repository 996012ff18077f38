"""How TensorFlow computes Concat."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.concat import ConcatOptions
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Concat")
def emit_concat(request: EmitRequest) -> Emission:
    """Join channels-last if any bottom has this order, so that inception-like nets stay channels-last."""
    options = request.layer.definition.options
    assert isinstance(options, ConcatOptions)
    if any(bottom.is_channels_last for bottom in request.bottoms):
        axis = NCHW_TO_NHWC.index(options.axis)
        return Emission((Blob.from_channels_last(tf.concat([b.channels_last for b in request.bottoms], axis)),))
    return Emission((Blob.from_caffe(tf.concat([bottom.caffe for bottom in request.bottoms], options.axis)),))
