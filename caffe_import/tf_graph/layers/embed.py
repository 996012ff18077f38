"""Embed in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.embed import EmbedOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Embed")
def emit_embed(request: EmitRequest) -> Emission:
    """Gather rows by index (indices are floats, as every Caffe blob)."""
    options = request.layer.definition.options
    assert isinstance(options, EmbedOptions)
    top = tf.gather(request.params[0], tf.cast(request.bottoms[0].caffe, tf.int32))
    if options.has_bias:
        top += request.params[1]
    return Emission((Blob.from_caffe(top),))
