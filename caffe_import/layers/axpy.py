"""Axpy: scale each channel of x by a factor of its own and add y.

Source: SENet's fork of Caffe, src/caffe/layers/axpy_layer.cpp.
"""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import require_rank, require_same_shape, shape_text


@layer_type(
    "Axpy",
    bottoms=(3, 3),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="its bottoms'",
        gradient_keeps="bottoms",
        reads_overwritten=False,
        reuses_bottom=True,
    ),
)
def define_axpy(request: LayerRequest) -> LayerDefinition:
    """Bottoms: the factors (N, C) or (N, C, 1, 1), x and y (N, C, H, W). Top: the shape of x."""
    factors = request.bottom_shapes[0]
    shape = require_rank(request, 1, 4, axes="4 axes (N, C, H, W)")
    require_same_shape(request, 1, 2)
    allowed = (shape[:2], (*shape[:2], 1, 1))
    if factors not in allowed:
        finding = (
            f'bottom "{request.message.bottom[0]}" has shape {shape_text(factors)}; expected one factor per sample and '
            f"channel, {shape_text(allowed[0])} or {shape_text(allowed[1])}"
        )
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=(shape,), gradient_reads_bottoms=True)
