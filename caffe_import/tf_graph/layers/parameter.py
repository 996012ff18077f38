"""Parameter in TensorFlow: the blob is the top."""

from __future__ import annotations

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Parameter")
def emit_parameter(request: EmitRequest) -> Emission:
    """Return the parameter blob."""
    return Emission((Blob.from_caffe(request.params[0]),))
