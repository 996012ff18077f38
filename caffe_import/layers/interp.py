"""Interp: resize an image bilinearly, corner on corner.

Source: DeepLab's fork of Caffe, src/caffe/layers/interp_layer.cpp and util/interp.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import require_rank
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class InterpOptions:
    """Resolved options.

    Attributes:
        cut_before: So many rows above and columns to the left are left out (-pad_beg).
        cut_after: So many rows below and columns to the right are left out (-pad_end).
        size: Height and width of the top, in pixels.
    """

    cut_before: int
    cut_after: int
    size: tuple[int, int]


@layer_type(
    "Interp",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="float32", axis_order="channels last", gradient_keeps="bottoms", reads_overwritten=False
    ),
)
def define_interp(request: LayerRequest) -> LayerDefinition:
    """Top: (N, C, height, width), from the factors, else from height and width themselves.

    Shrinking makes (size - 1) / shrink_factor + 1 of a size, zooming size + (size - 1) (zoom_factor - 1); with both,
    in this order. Factors go before a given height and width, as in the fork, if only one factor is given.
    """
    param = request.message.interp_param
    shape = require_rank(request, 0, 4, axes="4 axes (N, C, H, W)")
    if param.pad_beg > 0 or param.pad_end > 0:
        finding = (
            f"interp_param.pad_beg={param.pad_beg}, pad_end={param.pad_end}: allowed: 0, or below 0 to cut the border"
        )
        raise request.refuse(finding)
    height, width = (extent + param.pad_beg + param.pad_end for extent in shape[2:])
    if min(height, width) < 1:
        finding = f"pad_beg={param.pad_beg}, pad_end={param.pad_end} leave nothing of a bottom of {shape[2]}x{shape[3]}"
        raise request.refuse(finding)
    size = _top_size(request, param, (height, width))
    return LayerDefinition(
        top_shapes=((*shape[:2], *size),), options=InterpOptions(-param.pad_beg, -param.pad_end, size)
    )


def _top_size(request: LayerRequest, param: caffe_pb2.InterpParameter, size: tuple[int, int]) -> tuple[int, int]:
    has_zoom, has_shrink = param.HasField("zoom_factor"), param.HasField("shrink_factor")
    has_size = param.HasField("height") and param.HasField("width")
    if has_zoom == has_shrink and has_size:
        if min(param.height, param.width) < 1:
            finding = f"interp_param height {param.height}, width {param.width}: every value must be at least 1"
            raise request.refuse(finding)
        return param.height, param.width
    if not (has_zoom or has_shrink):
        finding = "allowed: interp_param with zoom_factor, shrink_factor or both, or with height and width"
        raise request.refuse(finding)
    if min(param.zoom_factor, param.shrink_factor) < 1:
        finding = (
            f"interp_param zoom_factor {param.zoom_factor}, shrink_factor {param.shrink_factor}: "
            "every value must be at least 1"
        )
        raise request.refuse(finding)
    height, width = (_scaled(extent, param.zoom_factor, param.shrink_factor) for extent in size)
    return height, width


def _scaled(extent: int, zoom_factor: int, shrink_factor: int) -> int:
    shrunk = (extent - 1) // shrink_factor + 1
    return shrunk + (shrunk - 1) * (zoom_factor - 1)
