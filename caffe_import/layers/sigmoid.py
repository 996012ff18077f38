"""Sigmoid. Source: BVLC Caffe, src/caffe/layers/sigmoid_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("Sigmoid", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_sigmoid(request: LayerRequest) -> LayerDefinition:
    """Top: 1 / (1 + exp(-x)), the bottom's shape."""
    return LayerDefinition(top_shapes=request.bottom_shapes)
