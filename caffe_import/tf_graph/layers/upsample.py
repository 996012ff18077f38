"""How TensorFlow computes Upsample."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import tensorflow as tf

from caffe_import.layers.upsample import UnpoolingOptions, UpsampleOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.own_gradient import own_gradient


@emitter("Upsample")
def emit_upsample(request: EmitRequest) -> Emission:
    """Take the nearest pixel; whole factors repeat each pixel.

    From the pixels' centres, no position is on the border of two, where rounding would decide.
    """
    options = request.layer.definition.options
    if isinstance(options, UnpoolingOptions):
        return Emission((_unpooled(request.bottoms[0], request.bottoms[1], options),))
    assert isinstance(options, UpsampleOptions)
    height, width = request.layer.bottom_shapes[0][2:]
    size = (height * options.scale_h, width * options.scale_w)
    image = request.bottoms[0].channels_last
    resized = tf.raw_ops.ResizeNearestNeighbor(images=image, size=size, half_pixel_centers=True)
    return Emission((Blob.from_channels_last(resized),))


def _unpooled(bottom: Blob, mask: Blob, options: UnpoolingOptions) -> Blob:
    """Write each value to the value's position in a plane of zeros; at a shared position the last window counts."""
    values = bottom.caffe
    channels, n_pixels = values.shape[1], prod(values.shape[2:])
    planes = tf.reshape(tf.cast(mask.caffe, tf.int32), (-1, n_pixels))
    n_planes, plane_size = tf.shape(planes)[0], prod(options.size)
    flat_indices = tf.reshape(planes + plane_size * tf.range(n_planes)[:, tf.newaxis], (-1, 1))

    @own_gradient
    def scattered(flat: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        tops = tf.tensor_scatter_nd_update(tf.zeros((n_planes * plane_size,)), flat_indices, flat)
        # Caffe reads the place's gradient for each value, also for one that was overwritten.
        return tops, lambda gradient: tf.gather_nd(gradient, flat_indices)

    return Blob.from_caffe(tf.reshape(scattered(tf.reshape(values, (-1,))), (-1, channels, *options.size)))
