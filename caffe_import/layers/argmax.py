"""ArgMax: indices (and values) of the largest entries; among equals the larger index comes first."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, Shape, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@dataclass(frozen=True)
class ArgMaxOptions:
    """Resolved options of ArgMax.

    Attributes:
        axis: Axis that is searched, None for all axes of a sample together.
        top_k: Number of entries.
        out_max_val: With an axis: values instead of indices; without: both.
    """

    axis: int | None
    top_k: int
    out_max_val: bool


@layer_type(
    "ArgMax",
    bottoms=(1, 1),
    tops=(1, 1),
    differentiable_bottoms=False,
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
)
def define_argmax(request: LayerRequest) -> LayerDefinition:
    """N x (1 or 2) x top_k without an axis, else top_k along it. Source: argmax_layer.cpp, ArgMaxLayer::Reshape."""
    param = request.message.argmax_param
    shape = request.bottom_shapes[0]
    if not shape:
        finding = "bottom has no axes; expected (N, ...)"
        raise request.refuse(finding)
    axis = None
    if param.HasField("axis"):
        axis = canonical_axis(request, param.axis, len(shape), option="argmax_param.axis")
    extent = prod(shape[1:]) if axis is None else shape[axis]
    if not 1 <= param.top_k <= extent:
        finding = f"top_k={param.top_k}: allowed are 1 to {extent}, the number of values compared"
        raise request.refuse(finding)
    options = ArgMaxOptions(axis, param.top_k, param.out_max_val)
    return LayerDefinition(top_shapes=(_top_shape(shape, options),), options=options)


def _top_shape(shape: Shape, options: ArgMaxOptions) -> Shape:
    if options.axis is not None:
        return (*shape[: options.axis], options.top_k, *shape[options.axis + 1 :])
    trailing = (1,) * (max(len(shape), 3) - 3)
    return (shape[0], 2 if options.out_max_val else 1, options.top_k, *trailing)
