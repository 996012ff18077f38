"""Flatten: several axes become one. Source: BVLC Caffe, src/caffe/layers/flatten_layer.cpp."""

from __future__ import annotations

from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@layer_type(
    "Flatten",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="kept", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False, is_identity=True
    ),
)
def define_flatten(request: LayerRequest) -> LayerDefinition:
    """Top: axes ``axis`` to ``end_axis``, both included, joined in Caffe's order.

    An ``end_axis`` just before ``axis`` joins none: it inserts an axis of 1.
    """
    param = request.message.flatten_param
    shape = request.bottom_shapes[0]
    start = canonical_axis(request, param.axis, len(shape), option="flatten_param.axis")
    end = canonical_axis(request, param.end_axis, len(shape), option="flatten_param.end_axis")
    if end < start - 1:
        finding = f"flatten_param.end_axis={param.end_axis} is more than one before axis={param.axis}"
        raise request.refuse(finding)
    top = (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])
    return LayerDefinition(top_shapes=(top,), shares_memory=True)
