"""Silence: consumes blobs, so that they are not outputs of the net."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("Silence", bottoms=(1, None), tops=(0, 0))
def define_silence(request: LayerRequest) -> LayerDefinition:
    """No tops. Source: silence_layer.cpp."""
    return LayerDefinition(top_shapes=())
