"""Embed: a row of a learned table for every index, plus a bias."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@dataclass(frozen=True)
class EmbedOptions:
    """Resolved options of Embed.

    Attributes:
        has_bias: Is a bias of shape (num_output,) added?
    """

    has_bias: bool


@layer_type(
    "Embed",
    bottoms=(1, 1),
    tops=(1, 1),
    differentiable_bottoms=False,
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms", reads_overwritten=False),
)
def define_embed(request: LayerRequest) -> LayerDefinition:
    """Append an axis of num_output; the table is (input_dim, num_output). Source: embed_layer.cpp, LayerSetUp."""
    param = request.message.embed_param
    if param.num_output < 1 or param.input_dim < 1:
        finding = f"num_output={param.num_output}, input_dim={param.input_dim}: both must be 1 or more"
        raise request.refuse(finding)
    blobs = [BlobSpec((param.input_dim, param.num_output), param.weight_filler)]
    if param.bias_term:
        blobs.append(BlobSpec((param.num_output,), param.bias_filler))
    top = (*request.bottom_shapes[0], param.num_output)
    options = EmbedOptions(param.bias_term)
    return LayerDefinition(top_shapes=(top,), blobs=tuple(blobs), options=options, gradient_reads_bottoms=True)
