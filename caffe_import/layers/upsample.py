"""Upsample: repeat every pixel, or put every pixel back to the position before a MAX pooling.

Two layers of the same name. With a single bottom: the layer of YOLO v3's ports to Caffe. With two: SegNet's unpooling;
the second bottom is the mask of a Pooling layer. Source: src/caffe/layers/upsample_layer.cpp of these forks.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import require_rank, require_same_shape

_OF_SEGNET = ("pad_out_h", "pad_out_w", "upsample_h", "upsample_w")


@dataclass(frozen=True)
class UpsampleOptions:
    """How often each row and each column is repeated."""

    scale_h: int
    scale_w: int


@dataclass(frozen=True)
class UnpoolingOptions:
    """Height and width of the top, in pixels; the mask counts them row by row."""

    size: tuple[int, int]


@layer_type(
    "Upsample",
    bottoms=(1, 2),
    tops=(1, 1),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="channels last", gradient_keeps="nothing", reads_overwritten=False
    ),
)
def define_upsample(request: LayerRequest) -> LayerDefinition:
    """Top: (N, C, H scale_h, W scale_w); ``scale`` sets both; the default is 2.

    With a mask, ``upsample_h`` and ``upsample_w`` name the size, or ``pad_out_h`` and ``pad_out_w`` take a row or
    column off the size: the pooling of an odd size had rounded up.
    """
    shape = require_rank(request, 0, 4, axes="4 axes (N, C, H, W)")
    if len(request.bottom_shapes) == 2:
        require_same_shape(request, 0, 1)
        size = _unpooled_size(request, (shape[2], shape[3]))
        return LayerDefinition(top_shapes=((*shape[:2], *size),), options=UnpoolingOptions(size))
    fields = [name for name in _OF_SEGNET if request.message.upsample_param.HasField(name)]
    if fields:
        finding = (
            f"upsample_param.{fields[0]} belongs to SegNet's unpooling, which takes a second bottom, the mask of a "
            "Pooling layer; with one bottom allowed: scale, or scale_h and scale_w"
        )
        raise request.refuse(finding)
    scale = _scale(request)
    return LayerDefinition(
        top_shapes=((*shape[:2], shape[2] * scale[0], shape[3] * scale[1]),), options=UpsampleOptions(*scale)
    )


def _unpooled_size(request: LayerRequest, size: tuple[int, int]) -> tuple[int, int]:
    param = request.message.upsample_param
    if param.HasField("upsample_h") and param.HasField("upsample_w"):
        unpooled = (param.upsample_h, param.upsample_w)
    else:
        scale = _scale(request)
        unpooled = (size[0] * scale[0] - param.pad_out_h, size[1] * scale[1] - param.pad_out_w)
    if min(unpooled) < 1:
        finding = f"the top would have {unpooled[0]}x{unpooled[1]} pixels; at least 1x1 is needed"
        raise request.refuse(finding)
    return unpooled


def _scale(request: LayerRequest) -> tuple[int, int]:
    param = request.message.upsample_param
    has_h, has_w = param.HasField("scale_h"), param.HasField("scale_w")
    if has_h != has_w or (has_h and param.HasField("scale")):
        finding = "allowed: either scale, or both scale_h and scale_w"
        raise request.refuse(finding)
    scale = (param.scale_h, param.scale_w) if has_h else (param.scale, param.scale)
    if min(scale) < 1:
        finding = f"scale {scale}: every value must be at least 1"
        raise request.refuse(finding)
    return scale
