"""Filter in TensorFlow: its tops have a batch axis of unknown extent."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Filter")
def emit_filter(request: EmitRequest) -> Emission:
    """Gather the selected samples; the others get a zero gradient. The selector gets none."""
    *data, selector = request.bottoms
    selected_rows = tf.reshape(tf.where(tf.reshape(selector.caffe, [-1]) != 0), [-1])
    tops = []
    for blob in data:
        wrap = Blob.from_channels_last if blob.is_channels_last else Blob.from_caffe
        tops.append(wrap(tf.gather(blob.values, selected_rows)))
    return Emission(tuple(tops))
