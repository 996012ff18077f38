"""Crop: cut bottom 0 to the extents of bottom 1 from ``axis`` on; no gradient goes to the reference."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, Shape, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@dataclass(frozen=True)
class CropOptions:
    """Resolved options of Crop.

    Attributes:
        begin: First kept index on every axis (0 on axes that are not cropped).
        crops_batch: Is the first axis cropped too?
    """

    begin: Shape
    crops_batch: bool


@layer_type(
    "Crop",
    bottoms=(2, 2),
    tops=(1, 1),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="its bottoms'", gradient_keeps="nothing", reads_overwritten=False
    ),
)
def define_crop(request: LayerRequest) -> LayerDefinition:
    """Resolve offsets: none is 0, one serves all cropped axes. Source: crop_layer.cpp, CropLayer::Reshape."""
    param = request.message.crop_param
    source, reference = request.bottom_shapes
    axis = canonical_axis(request, param.axis, len(request.bottom_shapes[0]), option="crop_param.axis")
    offsets = list(param.offset) or [0]
    n_cropped = len(source) - axis
    if len(source) > len(reference) or len(offsets) not in (1, n_cropped):
        finding = (
            f"bottom shapes {source} and {reference}, {len(param.offset)} offsets from axis {axis}: "
            f"needs a reference of as many axes and 0, 1 or {n_cropped} offsets"
        )
        raise request.refuse(finding)
    offsets = offsets * n_cropped if len(offsets) == 1 else offsets
    begin = (0,) * axis + tuple(offsets)
    top = source[:axis] + reference[axis : len(source)]
    for position in range(axis, len(source)):
        if begin[position] + top[position] > source[position]:
            crop_end = f"offset {begin[position]} + reference extent {top[position]}"
            finding = f"axis {position}: {crop_end} exceeds the bottom's {source[position]}"
            raise request.refuse(finding)
    return LayerDefinition(top_shapes=(top,), options=CropOptions(begin, crops_batch=axis == 0))
