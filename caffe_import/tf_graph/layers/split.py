"""How TensorFlow computes Split: not at all; gradients of several readers add up by themselves."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Split")
def emit_split(request: EmitRequest) -> Emission:
    """Hand the bottom on, once per top."""
    return Emission((request.bottoms[0],) * len(request.layer.tops))
