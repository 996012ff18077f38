"""Bias: add a learned blob, or a second bottom, repeated over the other axes.

Source: BVLC Caffe, src/caffe/layers/bias_layer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.covered_axes import covered_axes, require_covered


@dataclass(frozen=True)
class BiasOptions:
    """``axis`` (canonical) is the first axis of the bottom covered by the added values."""

    axis: int


@layer_type(
    "Bias",
    bottoms=(1, 2),
    tops=(1, 1),
    in_place=True,
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="its bottoms'",
        gradient_keeps="nothing",
        reads_overwritten=False,
        reuses_bottom=True,
    ),
)
def define_bias(request: LayerRequest) -> LayerDefinition:
    """Top: the first bottom's shape."""
    param = request.message.bias_param
    if len(request.bottom_shapes) == 2:
        axis = require_covered(request, param.axis, option="bias_param.axis")
        return LayerDefinition(top_shapes=request.bottom_shapes[:1], options=BiasOptions(axis))
    axis, shape = covered_axes(request, param.axis, param.num_axes, option="bias_param")
    return LayerDefinition(
        top_shapes=request.bottom_shapes[:1], blobs=(BlobSpec(shape, param.filler),), options=BiasOptions(axis)
    )
