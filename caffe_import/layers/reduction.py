"""Reduction: sum, absolute sum, sum of squares or mean over the trailing axes."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class ReductionOptions:
    """Resolved options of Reduction.

    Attributes:
        operation: SUM, ASUM, SUMSQ or MEAN.
        axis: First axis that is reduced; all later ones are too.
        coeff: Factor of the result.
    """

    operation: str
    axis: int
    coeff: float


@layer_type(
    "Reduction",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms", reads_overwritten=False),
)
def define_reduction(request: LayerRequest) -> LayerDefinition:
    """Keep the axes before ``axis``. Source: reduction_layer.cpp."""
    param = request.message.reduction_param
    axis = canonical_axis(request, param.axis, len(request.bottom_shapes[0]), option="reduction_param.axis")
    operation = caffe_pb2.ReductionParameter.ReductionOp.Name(param.operation)
    options = ReductionOptions(operation, axis, param.coeff)
    return LayerDefinition(top_shapes=(request.bottom_shapes[0][:axis],), options=options, gradient_reads_bottoms=True)
