"""How TensorFlow computes Permute."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.permute import PermuteOptions
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Permute")
def emit_permute(request: EmitRequest) -> Emission:
    """Transpose; SSD's order (0, 2, 3, 1) of a channels-last image needs none."""
    options = request.layer.definition.options
    assert isinstance(options, PermuteOptions)
    bottom = request.bottoms[0]
    if options.order == NCHW_TO_NHWC and bottom.is_channels_last:
        return Emission((Blob.from_caffe(bottom.channels_last),))
    return Emission((Blob.from_caffe(tf.transpose(bottom.caffe, options.order)),))
