"""TanH. Source: BVLC Caffe, src/caffe/layers/tanh_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("TanH", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_tanh(request: LayerRequest) -> LayerDefinition:
    """Top: tanh(x), the bottom's shape."""
    return LayerDefinition(top_shapes=request.bottom_shapes)
