"""ArgMax in TensorFlow."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.layers.argmax import ArgMaxOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("ArgMax")
def emit_argmax(request: EmitRequest) -> Emission:
    """Search the reversed values: TensorFlow prefers the smaller index among equals, Caffe the larger."""
    options = request.layer.definition.options
    assert isinstance(options, ArgMaxOptions)
    x = request.bottoms[0].caffe
    shape = request.layer.bottom_shapes[0]
    top_shape = request.layer.definition.top_shapes[0]
    if options.axis is None:
        values, indices = _largest(tf.reshape(x, [-1, prod(shape[1:])]), options.top_k)
        top = tf.stack([indices, values], 1) if options.out_max_val else indices
        return Emission((Blob.from_caffe(tf.reshape(top, (-1, *top_shape[1:]))),))
    rank = len(shape)
    to_last = [axis for axis in range(rank) if axis != options.axis] + [options.axis]
    values, indices = _largest(tf.transpose(x, to_last), options.top_k)
    top = tf.transpose(values if options.out_max_val else indices, [to_last.index(axis) for axis in range(rank)])
    return Emission((Blob.from_caffe(top),))


def _largest(x: tf.Tensor, top_k: int) -> tuple[tf.Tensor, tf.Tensor]:
    values, reversed_indices = tf.math.top_k(tf.reverse(x, [-1]), top_k)
    return values, tf.cast(tf.shape(x)[-1] - 1 - reversed_indices, tf.float32)
