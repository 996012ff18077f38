"""PReLU: y = max(x, 0) + slope min(x, 0) with a learned slope per channel or one for all."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits, per_top_value
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class PReLUOptions:
    """Resolved options of PReLU.

    Attributes:
        channel_shared: One slope for all channels.
    """

    channel_shared: bool


@layer_type(
    "PReLU",
    bottoms=(1, 1),
    tops=(1, 1),
    in_place=True,
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="its bottoms'",
        gradient_keeps="bottoms",
        reads_overwritten=False,
        kept_bytes=per_top_value(1),
        reuses_bottom=True,
    ),
)
def define_prelu(request: LayerRequest) -> LayerDefinition:
    """Keep the shape; the slopes start at 0.25 unless a filler is given. Source: prelu_layer.cpp, LayerSetUp."""
    shape = request.bottom_shapes[0]
    if len(shape) < 2:
        finding = f"bottom has shape {shape}; allowed: 2 or more axes (N, C, ...)"
        raise request.refuse(finding)
    param = request.message.prelu_param
    default = caffe_pb2.FillerParameter(type="constant", value=0.25)
    filler = param.filler if param.HasField("filler") else default
    blob = BlobSpec(() if param.channel_shared else (shape[1],), filler)
    options = PReLUOptions(param.channel_shared)
    return LayerDefinition(top_shapes=(shape,), blobs=(blob,), options=options, gradient_reads_bottoms=True)
