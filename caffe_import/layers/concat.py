"""Concat: bottoms one after the other along an axis. Source: BVLC Caffe, src/caffe/layers/concat_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, Shape, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis, shape_text


@dataclass(frozen=True)
class ConcatOptions:
    """``axis`` (canonical) is the growing axis."""

    axis: int


@layer_type(
    "Concat",
    bottoms=(1, None),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="kept", axis_order="its bottoms'", gradient_keeps="nothing", reads_overwritten=False),
)
def define_concat(request: LayerRequest) -> LayerDefinition:
    """Top: the bottoms' shape, summed along the axis. ``concat_dim`` is the deprecated name of ``axis``."""
    param = request.message.concat_param
    first = request.bottom_shapes[0]
    if param.HasField("axis") and param.HasField("concat_dim"):
        finding = "has axis and concat_dim; allowed: one of both (concat_dim is deprecated)"
        raise request.refuse(finding)
    name = "concat_dim" if param.HasField("concat_dim") else "axis"
    axis = canonical_axis(request, getattr(param, name), len(first), option=f"concat_param.{name}")
    for bottom, shape in zip(request.message.bottom, request.bottom_shapes, strict=True):
        if len(shape) != len(first) or _without(shape, axis) != _without(first, axis):
            finding = (
                f'bottom "{bottom}" has shape {shape_text(shape)}; expected that of "{request.message.bottom[0]}", '
                f"{shape_text(first)}, except along axis {axis}"
            )
            raise request.refuse(finding)
    extent = sum(shape[axis] for shape in request.bottom_shapes)
    return LayerDefinition(
        top_shapes=((*first[:axis], extent, *first[axis + 1 :]),),
        options=ConcatOptions(axis),
        shares_memory=len(request.bottom_shapes) == 1,
    )


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]
