"""MVN in TensorFlow, with Caffe's gradient."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from caffe_import.layers.mvn import MVNOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.own_gradient import own_gradient
from caffe_import.tf_graph.passes.in_place import Memory, memory_gradient


@emitter("MVN")
def emit_mvn(request: EmitRequest) -> Emission:
    """Normalise over (H, W), or over (C, H, W) with across_channels."""
    options = request.layer.definition.options
    assert isinstance(options, MVNOptions)
    x = tf.reshape(request.bottoms[0].caffe, (-1, *request.layer.definition.top_shapes[0][1:]))
    axes = [1, 2, 3] if options.across_channels else [2, 3]
    centred = x - tf.reduce_mean(x, axes, keepdims=True)
    if not options.normalize_variance:
        return Emission((Blob.from_caffe(centred),))
    return Emission((Blob.from_caffe(_normalise(x, axes, options.eps)),))


def _normalise(x: tf.Tensor, axes: list[int], eps: float) -> tf.Tensor:
    """Divide by deviation + eps. Caffe's gradient takes the sum for the deviation itself (MVNLayer::Backward_cpu)."""

    @own_gradient
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        centred = x - tf.reduce_mean(x, axes, keepdims=True)
        deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), axes, keepdims=True)) + eps
        top = centred / deviation

        def gradient(diff: tf.Tensor) -> tf.Tensor:
            along = tf.reduce_mean(diff * top, axes, keepdims=True)
            return (diff - tf.reduce_mean(diff, axes, keepdims=True) - top * along) / deviation

        return top, gradient

    return run(x)


@memory_gradient("MVN", own_value_is_enough=False)
def _mvn_from_memory(memory: Memory) -> tf.Tensor:
    options = memory.layer.definition.options
    assert isinstance(options, MVNOptions)
    axes = [memory.axis(axis) for axis in ((1, 2, 3) if options.across_channels else (2, 3))]
    if not options.normalize_variance:
        return memory.gradient - tf.reduce_mean(memory.gradient, axes, keepdims=True)
    centred = memory.given - tf.reduce_mean(memory.given, axes, keepdims=True)
    deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), axes, keepdims=True)) + options.eps
    along = tf.reduce_mean(memory.gradient * memory.top, axes, keepdims=True)
    if memory.is_in_place:
        # Each step reads what the one before has written over the gradient; the last, y = y * (-1/n) + x, has y = x.
        n_values = tf.cast(tf.size(memory.top) // tf.size(along), tf.float32)
        return -2 * along * (memory.top + n_values * tf.reduce_mean(memory.top, axes, keepdims=True)) / deviation
    return (memory.gradient - tf.reduce_mean(memory.gradient, axes, keepdims=True) - memory.top * along) / deviation
