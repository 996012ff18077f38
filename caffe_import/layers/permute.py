"""Permute: reorder the axes. Source: SSD's fork of Caffe, src/caffe/layers/permute_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@dataclass(frozen=True)
class PermuteOptions:
    """``order[i]`` is the bottom's axis for axis i of the top; every axis occurs once."""

    order: tuple[int, ...]


@layer_type(
    "Permute",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="kept", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
)
def define_permute(request: LayerRequest) -> LayerDefinition:
    """Top: the bottom's extents in the new order. Axes not in ``order`` follow in the old order."""
    shape = request.bottom_shapes[0]
    listed_axes = tuple(request.message.permute_param.order)
    if any(axis >= len(shape) for axis in listed_axes) or len(set(listed_axes)) != len(listed_axes):
        finding = (
            f"permute_param.order={list(listed_axes)}: the bottom has {len(shape)} axes; "
            f"allowed: each of 0 to {len(shape) - 1} at most once"
        )
        raise request.refuse(finding)
    order = listed_axes + tuple(axis for axis in range(len(shape)) if axis not in listed_axes)
    return LayerDefinition(top_shapes=(tuple(shape[axis] for axis in order),), options=PermuteOptions(order))
