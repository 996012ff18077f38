"""How TensorFlow computes Flatten: a reshape in Caffe's axis order."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Flatten")
def emit_flatten(request: EmitRequest) -> Emission:
    """Reshape."""
    # The batch, whose extent only the run may know, is in the top's first axis whatever is joined.
    shape = (-1, *request.layer.definition.top_shapes[0][1:])
    return Emission((Blob.from_caffe(tf.reshape(request.bottoms[0].caffe, shape)),))
