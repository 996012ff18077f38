"""Split in TensorFlow: nothing to compute; TensorFlow adds up the gradients of several readers."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Split")
def emit_split(request: EmitRequest) -> Emission:
    """Return the bottom, once per top."""
    return Emission((request.bottoms[0],) * len(request.layer.tops))
