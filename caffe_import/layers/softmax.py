"""Softmax along one axis. Source: BVLC Caffe, src/caffe/layers/softmax_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@dataclass(frozen=True)
class SoftmaxOptions:
    """``axis`` (canonical) holds the classes."""

    axis: int


@layer_type(
    "Softmax",
    bottoms=(1, 1),
    tops=(1, 1),
    in_place=True,
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="its bottoms'",
        gradient_keeps="tops",
        reads_overwritten=True,
        reuses_bottom=True,
    ),
)
def define_softmax(request: LayerRequest) -> LayerDefinition:
    """Top: the bottom's shape; sums to 1 along the axis."""
    rank = len(request.bottom_shapes[0])
    axis = canonical_axis(request, request.message.softmax_param.axis, rank, option="softmax_param.axis")
    return LayerDefinition(top_shapes=request.bottom_shapes, options=SoftmaxOptions(axis))
