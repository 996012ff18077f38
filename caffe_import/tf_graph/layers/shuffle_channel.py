"""How TensorFlow computes ShuffleChannel."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.shuffle_channel import ShuffleChannelOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("ShuffleChannel")
def emit_shuffle_channel(request: EmitRequest) -> Emission:
    """Transpose the channels as a table (group, channels / group)."""
    options = request.layer.definition.options
    assert isinstance(options, ShuffleChannelOptions)
    bottom = request.bottoms[0]
    shape = request.layer.bottom_shapes[0]
    per_group = shape[1] // options.group
    if bottom.is_channels_last:
        table = tf.reshape(bottom.channels_last, (-1, *shape[2:], options.group, per_group))
        turned = tf.reshape(tf.transpose(table, (0, 1, 2, 4, 3)), (-1, *shape[2:], shape[1]))
        return Emission((Blob.from_channels_last(turned),))
    table = tf.reshape(bottom.caffe, (-1, options.group, per_group, *shape[2:]))
    axes = (0, 2, 1, *range(3, len(shape) + 1))
    return Emission((Blob.from_caffe(tf.reshape(tf.transpose(table, axes), (-1, *shape[1:]))),))
