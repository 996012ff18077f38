"""Crop in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.crop import CropOptions
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob, batch_extent
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Crop")
def emit_crop(request: EmitRequest) -> Emission:
    """Slice, in the bottom's axis order; the batch axis may have an extent that only the run knows."""
    options = request.layer.definition.options
    assert isinstance(options, CropOptions)
    bottom, reference = request.bottoms
    size: list[int | tf.Tensor] = list(request.layer.definition.top_shapes[0])
    size[0] = batch_extent(reference.values if options.crops_batch else bottom.values)
    axes = NCHW_TO_NHWC if bottom.is_channels_last else tuple(range(len(size)))
    top = tf.slice(bottom.values, [options.begin[axis] for axis in axes], [size[axis] for axis in axes])
    return Emission((Blob.from_channels_last(top) if bottom.is_channels_last else Blob.from_caffe(top),))
