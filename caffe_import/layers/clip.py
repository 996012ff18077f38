"""Clip: y = min(max(x, min), max); the gradient passes on the bounds themselves."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class ClipOptions:
    """Resolved options of Clip.

    Attributes:
        min: Lower bound.
        max: Upper bound.
    """

    min: float
    max: float


@layer_type("Clip", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_clip(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: clip_layer.cpp."""
    param = request.message.clip_param
    if not (param.HasField("min") and param.HasField("max")):
        finding = "clip_param needs both min and max"
        raise request.refuse(finding)
    options = ClipOptions(min=param.min, max=param.max)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
