"""Upsample: repeat every pixel. Source: the Caffe ports of YOLO v3, src/caffe/layers/upsample_layer.cpp.

SegNet's layer of the same name takes a second bottom, the places of a pooling's maxima; it is not this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.axes import require_rank
from caffe_import.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class UpsampleOptions:
    """How often each row and each column is repeated."""

    scale_h: int
    scale_w: int


@layer_type("Upsample", bottoms=(1, 1), tops=(1, 1))
def define_upsample(request: LayerRequest) -> LayerDefinition:
    """Top: (N, C, H scale_h, W scale_w); ``scale`` stands for both and is 2 where nothing is said."""
    param = request.message.upsample_param
    shape = require_rank(request, 0, 4, axes="4 axes (N, C, H, W)")
    of_segnet = [name for name in ("pad_out_h", "pad_out_w", "upsample_h", "upsample_w") if param.HasField(name)]
    if of_segnet:
        finding = (
            f"upsample_param.{of_segnet[0]} belongs to SegNet's unpooling, which is not imported; "
            "allowed: scale, or scale_h and scale_w"
        )
        raise request.refuse(finding)
    has_h, has_w = param.HasField("scale_h"), param.HasField("scale_w")
    if has_h != has_w or (has_h and param.HasField("scale")):
        finding = "allowed: either scale, or both scale_h and scale_w"
        raise request.refuse(finding)
    scale = (param.scale_h, param.scale_w) if has_h else (param.scale, param.scale)
    if min(scale) < 1:
        finding = f"scale {scale}: every value must be at least 1"
        raise request.refuse(finding)
    return LayerDefinition(
        top_shapes=((*shape[:2], shape[2] * scale[0], shape[3] * scale[1]),), options=UpsampleOptions(*scale)
    )
