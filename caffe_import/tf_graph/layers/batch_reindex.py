"""BatchReindex in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("BatchReindex")
def emit_batch_reindex(request: EmitRequest) -> Emission:
    """Gather along the batch axis, which comes first in either axis order."""
    data, index = request.bottoms
    top = tf.gather(data.values, tf.cast(index.caffe, tf.int32))
    wrap = Blob.from_channels_last if data.is_channels_last else Blob.from_caffe
    return Emission((wrap(top),))
