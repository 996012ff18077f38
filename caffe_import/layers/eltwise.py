"""Eltwise: sum, product or maximum of blobs of one shape. Source: BVLC Caffe, src/caffe/layers/eltwise_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits, per_top_value
from caffe_import.net.shapes.axes import require_same_shape
from caffe_import.proto import caffe_pb2

Operation = Literal["PROD", "SUM", "MAX"]


@dataclass(frozen=True)
class EltwiseOptions:
    """Resolved options.

    Attributes:
        operation: Operation on the bottoms' values at a position.
        coefficients: For SUM a factor for each bottom, else empty.
        divides_top: For PROD, is a bottom's gradient top / bottom * gradient? NaN where the bottom is 0.
    """

    operation: Operation
    coefficients: tuple[float, ...]
    divides_top: bool


_TRAITS = LayerTraits(
    arithmetic="float32",
    axis_order="its bottoms'",
    gradient_keeps="bottoms",
    reads_overwritten=True,
    reuses_bottom=True,
)


@layer_type(
    "Eltwise",
    bottoms=(2, None),
    tops=(1, 1),
    traits=_TRAITS,
)
def define_eltwise(request: LayerRequest) -> LayerDefinition:
    """Top: the bottoms' common shape.

    ``stable_prod_grad`` false makes Caffe compute a product's gradient as top / bottom, which is NaN where the
    bottom is 0; true takes the product of the other bottoms.
    """
    param = request.message.eltwise_param
    n_bottoms = len(request.bottom_shapes)
    for position in range(1, n_bottoms):
        require_same_shape(request, 0, position)
    operation = cast(Operation, caffe_pb2.EltwiseParameter.EltwiseOp.Name(param.operation))
    if param.coeff and operation == "PROD":
        finding = "has coefficients with operation: PROD; they are allowed with SUM"
        raise request.refuse(finding)
    if len(param.coeff) not in (0, n_bottoms):
        finding = f"has {len(param.coeff)} coefficients for {n_bottoms} bottoms; allowed: none, or one for each"
        raise request.refuse(finding)
    coefficients: tuple[float, ...] = ()
    if operation == "SUM":
        coefficients = tuple(param.coeff) or (1.0,) * n_bottoms
    options = EltwiseOptions(operation, coefficients, operation == "PROD" and not param.stable_prod_grad)
    return LayerDefinition(
        top_shapes=request.bottom_shapes[:1],
        options=options,
        gradient_reads_bottoms=operation == "PROD",
        traits=_traits(options, n_bottoms),
    )


def _traits(options: EltwiseOptions, n_bottoms: int) -> LayerTraits:
    traits = replace(_TRAITS, reads_overwritten=options.divides_top)
    if options.operation == "PROD":
        return traits
    if options.operation == "SUM":
        return replace(traits, gradient_keeps="nothing")
    # Each comparison of two bottoms leaves a mask of one byte a value.
    return replace(traits, arithmetic="kept", gradient_keeps="nothing", kept_bytes=per_top_value(n_bottoms - 1))
