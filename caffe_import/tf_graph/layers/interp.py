"""How TensorFlow computes Interp."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.interp import InterpOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Interp")
def emit_interp(request: EmitRequest) -> Emission:
    """Cut the border off, then resize with the step (in - 1) / (out - 1)."""
    options = request.layer.definition.options
    assert isinstance(options, InterpOptions)
    image = request.bottoms[0].channels_last
    height, width = request.layer.bottom_shapes[0][2:]
    cut_before, cut_after = options.cut_before, options.cut_after
    if cut_before or cut_after:
        image = image[:, cut_before : height - cut_after, cut_before : width - cut_after]
    return Emission(
        (Blob.from_channels_last(tf.raw_ops.ResizeBilinear(images=image, size=options.size, align_corners=True)),)
    )
