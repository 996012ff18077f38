"""Exp: y = base ^ (shift + scale x); base -1 means e."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.shapes.scaled_base import resolve_scaled_base


@layer_type("Exp", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_exp(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: exp_layer.cpp, ExpLayer::LayerSetUp."""
    options = resolve_scaled_base(request, request.message.exp_param)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
