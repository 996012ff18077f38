"""Swish: y = x sigmoid(beta x)."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class SwishOptions:
    """Resolved options of Swish.

    Attributes:
        beta: Slope inside the sigmoid.
    """

    beta: float


@layer_type("Swish", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_swish(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: swish_layer.cpp."""
    param = request.message.swish_param
    options = SwishOptions(beta=param.beta)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
