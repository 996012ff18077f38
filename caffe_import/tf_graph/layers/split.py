"""Split in TensorFlow: nothing to compute; TensorFlow adds up the gradients of several readers."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Split")
def emit_split(request: EmitRequest) -> Emission:
    """Return the bottom, once per top; no reader's kernel may compute the bottom another time."""
    bottom = request.bottoms[0]
    shared = bottom if bottom.scaled is None else bottom.wrap(bottom.values)
    return Emission((shared,) * len(request.layer.tops))
