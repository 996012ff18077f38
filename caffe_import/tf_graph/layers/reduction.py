"""Reduction in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.reduction import ReductionOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Reduction")
def emit_reduction(request: EmitRequest) -> Emission:
    """Reduce the trailing axes of the blob in Caffe's order."""
    options = request.layer.definition.options
    assert isinstance(options, ReductionOptions)
    x = request.bottoms[0].caffe
    axes = list(range(options.axis, len(request.layer.bottom_shapes[0])))
    if options.operation == "MEAN":
        top = tf.reduce_mean(x, axes)
    elif options.operation == "ASUM":
        top = tf.reduce_sum(tf.abs(x), axes)
    elif options.operation == "SUMSQ":
        top = tf.reduce_sum(tf.square(x), axes)
    else:
        top = tf.reduce_sum(x, axes)
    return Emission((Blob.from_caffe(options.coeff * top),))
