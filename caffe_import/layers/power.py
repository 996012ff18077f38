"""Power: y = (shift + scale x) ^ power; constant where power x scale = 0."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class PowerOptions:
    """Resolved options of Power.

    Attributes:
        power: Exponent.
        scale: Factor of x.
        shift: Added to scale x.
    """

    power: float
    scale: float
    shift: float


@layer_type("Power", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_power(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: power_layer.cpp, PowerLayer::Forward_cpu."""
    param = request.message.power_param
    options = PowerOptions(power=param.power, scale=param.scale, shift=param.shift)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
