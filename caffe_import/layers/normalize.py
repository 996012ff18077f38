"""Normalize: divide by the Euclidean norm, then multiply by a learned scale.

Source: SSD's fork of Caffe, src/caffe/layers/normalize_layer.cpp; Liu et al., "ParseNet" (2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import shape_text
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class NormalizeOptions:
    """Resolved options.

    Attributes:
        across_spatial: One norm per sample; otherwise one per sample and place, over the channels.
        channel_shared: One scale for all channels.
        eps: Added to the sum of squares, before the root.
    """

    across_spatial: bool
    channel_shared: bool
    eps: float


@layer_type(
    "Normalize",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="its bottoms'",
        gradient_keeps="bottoms and tops",
        reads_overwritten=False,
        reuses_bottom=True,
    ),
)
def define_normalize(request: LayerRequest) -> LayerDefinition:
    """Top: the bottom's shape. Blob: the scale, () or (C,); its default filler is constant 1."""
    param = request.message.norm_param
    shape = request.bottom_shapes[0]
    if len(shape) < 2:
        finding = f"bottom has shape {shape_text(shape)}; allowed: 2 or more axes (N, C, ...)"
        raise request.refuse(finding)
    default = caffe_pb2.FillerParameter(type="constant", value=1)
    filler = param.scale_filler if param.HasField("scale_filler") else default
    return LayerDefinition(
        top_shapes=(shape,),
        blobs=(BlobSpec(() if param.channel_shared else (shape[1],), filler),),
        options=NormalizeOptions(param.across_spatial, param.channel_shared, param.eps),
    )
