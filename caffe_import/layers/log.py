"""Log: y = log_base(shift + scale x); base -1 means e."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class LogOptions:
    """Resolved options of Log.

    Attributes:
        base: Positive, or -1 for e.
        scale: Factor of x.
        shift: Added to scale x.
    """

    base: float
    scale: float
    shift: float


@layer_type("Log", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_log(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: log_layer.cpp, LogLayer::LayerSetUp."""
    param = request.message.log_param
    if param.base != -1 and param.base <= 0:
        finding = f"base={param.base}: must be positive, or -1 for e"
        raise request.refuse(finding)
    options = LogOptions(base=param.base, scale=param.scale, shift=param.shift)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
