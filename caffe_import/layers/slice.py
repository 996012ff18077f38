"""Slice: cut a blob along an axis into the tops, at given points or evenly."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@dataclass(frozen=True)
class SliceOptions:
    """Resolved options of Slice.

    Attributes:
        axis: Axis that is cut, counted from the front.
        sizes: Extent of each top along it; their sum is the bottom's extent.
    """

    axis: int
    sizes: tuple[int, ...]


@layer_type(
    "Slice",
    bottoms=(1, 1),
    tops=(1, None),
    traits=LayerTraits(arithmetic="kept", axis_order="its bottoms'", gradient_keeps="nothing", reads_overwritten=False),
)
def define_slice(request: LayerRequest) -> LayerDefinition:
    """Cut at slice_point, or into equal parts. Source: slice_layer.cpp, SliceLayer::Reshape."""
    param = request.message.slice_param
    old = param.HasField("slice_dim")
    if old and param.HasField("axis"):
        finding = "slice_param has both axis and slice_dim; give axis"
        raise request.refuse(finding)
    axis = canonical_axis(
        request,
        param.slice_dim if old else param.axis,
        len(request.bottom_shapes[0]),
        option=f"slice_param.{'slice_dim' if old else 'axis'}",
    )
    shape = request.bottom_shapes[0]
    options = SliceOptions(axis, _sizes(request, shape[axis]))
    tops = tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in options.sizes)
    return LayerDefinition(top_shapes=tops, options=options, shares_memory=len(tops) == 1)


def _sizes(request: LayerRequest, extent: int) -> tuple[int, ...]:
    n_tops = len(request.message.top)
    points = list(request.message.slice_param.slice_point)
    if not points:
        if extent % n_tops:
            finding = f"extent {extent} does not divide into {n_tops} equal tops; give slice_point"
            raise request.refuse(finding)
        return (extent // n_tops,) * n_tops
    edges = [0, *points, extent]
    sizes = tuple(stop - start for start, stop in pairwise(edges))
    if len(points) != n_tops - 1 or any(size <= 0 for size in sizes):
        finding = f"slice_point={points}, extent {extent}, {n_tops} tops: needs {n_tops - 1} rising points inside it"
        raise request.refuse(finding)
    return sizes
