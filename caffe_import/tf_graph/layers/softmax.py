"""How TensorFlow computes Softmax."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.softmax import SoftmaxOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.passes.in_place import Memory, memory_gradient


@emitter("Softmax")
def emit_softmax(request: EmitRequest) -> Emission:
    """Over the last axis if the bottom is channels-last and the classes are its channels, else over Caffe's axis."""
    options = request.layer.definition.options
    assert isinstance(options, SoftmaxOptions)
    bottom = request.bottoms[0]
    if options.axis == 1 and bottom.is_channels_last:
        return Emission((Blob.from_channels_last(tf.nn.softmax(bottom.channels_last, axis=-1)),))
    return Emission((Blob.from_caffe(tf.nn.softmax(bottom.caffe, axis=options.axis)),))


@memory_gradient("Softmax", own_value_is_enough=True)
def _softmax_from_memory(memory: Memory) -> tf.Tensor:
    options = memory.layer.definition.options
    assert isinstance(options, SoftmaxOptions)
    along = tf.reduce_sum(memory.gradient * memory.top, memory.axis(options.axis), keepdims=True)
    return (memory.gradient - along) * memory.top
