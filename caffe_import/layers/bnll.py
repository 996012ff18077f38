"""BNLL: y = log(1 + exp(x))."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("BNLL", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_bnll(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: bnll_layer.cpp, BNLLLayer::Forward_cpu."""
    return LayerDefinition(top_shapes=request.bottom_shapes)
