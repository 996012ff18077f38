"""How TensorFlow computes Softmax."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.softmax import SoftmaxOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Softmax")
def emit_softmax(request: EmitRequest) -> Emission:
    """Over the last axis if the bottom is channels-last and the classes are its channels, else over Caffe's axis."""
    options = request.layer.definition.options
    assert isinstance(options, SoftmaxOptions)
    bottom = request.bottoms[0]
    if options.axis == 1 and bottom.is_channels_last:
        return Emission((Blob.from_channels_last(tf.nn.softmax(bottom.channels_last, axis=-1)),))
    return Emission((Blob.from_caffe(tf.nn.softmax(bottom.caffe, axis=options.axis)),))
