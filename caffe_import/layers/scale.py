"""Scale: multiply by a learned blob, or by a second bottom, repeated over the other axes; optionally add a bias.

Source: BVLC Caffe, src/caffe/layers/scale_layer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.covered_axes import covered_axes, require_covered
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class ScaleOptions:
    """Resolved options.

    Attributes:
        axis: First axis (canonical) of the bottom that the factors cover.
        has_bias: Is the last blob a bias of the factors' shape?
    """

    axis: int
    has_bias: bool


@layer_type(
    "Scale",
    bottoms=(1, 2),
    tops=(1, 1),
    in_place=True,
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="its bottoms'",
        gradient_keeps="bottoms",
        reads_overwritten=False,
        scratch_tops=1,
        reuses_bottom=True,
    ),
)
def define_scale(request: LayerRequest) -> LayerDefinition:
    """Top: the first bottom's shape. The factors' default filler is constant 1, the bias' constant 0."""
    param = request.message.scale_param
    if len(request.bottom_shapes) == 2:
        factors = request.bottom_shapes[1]
        axis = require_covered(request, param.axis, option="scale_param.axis")
        blobs = []
    else:
        axis, factors = covered_axes(request, param.axis, param.num_axes, option="scale_param")
        filler = param.filler if param.HasField("filler") else caffe_pb2.FillerParameter(type="constant", value=1)
        blobs = [BlobSpec(factors, filler)]
    if param.bias_term:
        blobs.append(BlobSpec(factors, param.bias_filler))
    return LayerDefinition(
        top_shapes=request.bottom_shapes[:1],
        blobs=tuple(blobs),
        options=ScaleOptions(axis, param.bias_term),
        gradient_reads_bottoms=True,
    )
