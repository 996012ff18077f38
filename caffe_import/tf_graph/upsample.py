"""How TensorFlow computes Upsample."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.upsample import UpsampleOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Upsample")
def emit_upsample(request: EmitRequest) -> Emission:
    """Take the nearest pixel; with whole factors that is the repeated one.

    Seen from the pixels' middles, no place falls on a border of two, where rounding would choose.
    """
    options = request.layer.definition.options
    assert isinstance(options, UpsampleOptions)
    height, width = request.layer.bottom_shapes[0][2:]
    size = (height * options.scale_h, width * options.scale_w)
    image = request.bottoms[0].channels_last
    resized = tf.raw_ops.ResizeNearestNeighbor(images=image, size=size, half_pixel_centers=True)
    return Emission((Blob.from_channels_last(resized),))
