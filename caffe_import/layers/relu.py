"""ReLU, with Caffe's optional slope below zero. Source: BVLC Caffe, src/caffe/layers/relu_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class ReLUOptions:
    """``negative_slope`` multiplies values below zero; it is also the derivative at exactly zero."""

    negative_slope: float


@layer_type("ReLU", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_relu(request: LayerRequest) -> LayerDefinition:
    """Top: max(x, 0) + negative_slope * min(x, 0), the bottom's shape."""
    options = ReLUOptions(request.message.relu_param.negative_slope)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
