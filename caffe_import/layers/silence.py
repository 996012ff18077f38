"""Silence: consumes blobs, so that the blobs are not outputs of the net."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@layer_type(
    "Silence",
    bottoms=(1, None),
    tops=(0, 0),
    traits=LayerTraits(arithmetic="kept", axis_order="its bottoms'", gradient_keeps="nothing", reads_overwritten=False),
)
def define_silence(request: LayerRequest) -> LayerDefinition:
    """No tops. Source: silence_layer.cpp."""
    return LayerDefinition(top_shapes=())
