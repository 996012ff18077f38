"""Threshold: y = 1 for x > threshold, else 0. It has no gradient."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class ThresholdOptions:
    """Resolved options of Threshold.

    Attributes:
        threshold: x must exceed it.
    """

    threshold: float


@layer_type("Threshold", bottoms=(1, 1), tops=(1, 1), differentiable_bottoms=False, in_place=True)
def define_threshold(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: threshold_layer.cpp."""
    param = request.message.threshold_param
    options = ThresholdOptions(threshold=param.threshold)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=options)
