"""ELU: y = x for x > 0, else alpha (exp(x) - 1); the slope at 0 is alpha."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class ELUOptions:
    """Resolved options of ELU.

    Attributes:
        alpha: Saturation for x towards minus infinity.
    """

    alpha: float


@layer_type("ELU", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_elu(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: elu_layer.cpp."""
    param = request.message.elu_param
    options = ELUOptions(alpha=param.alpha)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
