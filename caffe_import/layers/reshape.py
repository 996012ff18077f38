"""Reshape: the same values under another shape; 0 copies an extent, -1 is inferred."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, Shape, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import check_n_axes


@dataclass(frozen=True)
class ReshapeOptions:
    """``open_axis`` is the axis of the top that follows the bottom's batch; None: every extent is written out."""

    open_axis: int | None


@layer_type(
    "Reshape",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="kept", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False, is_identity=True
    ),
)
def define_reshape(request: LayerRequest) -> LayerDefinition:
    """Replace the axes [axis, axis + num_axes). A negative axis counts from *after* the last one.

    Source: reshape_layer.cpp, ReshapeLayer::LayerSetUp and Reshape.
    """
    param = request.message.reshape_param
    shape = request.bottom_shapes[0]
    start = param.axis if param.axis >= 0 else len(shape) + param.axis + 1
    stop = len(shape) if param.num_axes == -1 else start + param.num_axes
    if not 0 <= start <= stop <= len(shape) or param.num_axes < -1:
        finding = f"axis={param.axis} num_axes={param.num_axes} does not fit bottom shape {shape}"
        raise request.refuse(finding)
    check_n_axes(request, len(param.shape.dim), "the top")
    options = ReshapeOptions(_open_axis(list(param.shape.dim), start, stop))
    top = _top_shape(request, shape, start, stop)
    return LayerDefinition(top_shapes=(top,), options=options, shares_memory=True)


def _open_axis(dims: list[int], start: int, stop: int) -> int | None:
    if start > 0:
        return 0
    if stop == 0:
        return len(dims)
    if dims[:1] == [0]:
        return 0
    return dims.index(-1) if -1 in dims else None


def _top_shape(request: LayerRequest, shape: Shape, start: int, stop: int) -> Shape:
    dims = list(request.message.reshape_param.shape.dim)
    if dims.count(-1) > 1 or any(dim < -1 for dim in dims):
        finding = f"shape dims {dims}: allowed are extents, 0 (copy) and at most one -1 (infer)"
        raise request.refuse(finding)
    for position, dim in enumerate(dims):
        if dim == 0:
            if start + position >= len(shape):
                finding = f"dim {position} is 0, but bottom shape {shape} has no axis {start + position} to copy"
                raise request.refuse(finding)
            dims[position] = shape[start + position]
    top = [*shape[:start], *dims, *shape[stop:]]
    if -1 in dims:
        n_known = prod(dim for dim in top if dim != -1)
        if n_known == 0 or prod(shape) % n_known:
            finding = (
                f"bottom shape {shape} has {prod(shape)} values, not a multiple of {n_known}: -1 cannot be inferred"
            )
            raise request.refuse(finding)
        top[start + dims.index(-1)] = prod(shape) // n_known
    if prod(top) != prod(shape):
        finding = f"bottom shape {shape} has {prod(shape)} values, top shape {tuple(top)} has {prod(top)}"
        raise request.refuse(finding)
    return tuple(top)
