"""Exp: y = base ^ (shift + scale x); base -1 means e."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class ExpOptions:
    """Resolved options of Exp.

    Attributes:
        base: Positive, or -1 for e.
        scale: Factor of x.
        shift: Added to scale x.
    """

    base: float
    scale: float
    shift: float


@layer_type("Exp", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_exp(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: exp_layer.cpp, ExpLayer::LayerSetUp."""
    param = request.message.exp_param
    if param.base != -1 and param.base <= 0:
        finding = f"base={param.base}: must be positive, or -1 for e"
        raise request.refuse(finding)
    options = ExpOptions(base=param.base, scale=param.scale, shift=param.shift)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
