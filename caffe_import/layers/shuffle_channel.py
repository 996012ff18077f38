"""ShuffleChannel: deal the channels of each group out over all groups.

Source: ShuffleNet's fork of Caffe, src/caffe/layers/shuffle_channel_layer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import shape_text


@dataclass(frozen=True)
class ShuffleChannelOptions:
    """``group`` neighbouring runs of channels; channel j of group i goes to place j * group + i."""

    group: int


@layer_type(
    "ShuffleChannel",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="kept", axis_order="its bottoms'", gradient_keeps="nothing", reads_overwritten=False),
)
def define_shuffle_channel(request: LayerRequest) -> LayerDefinition:
    """Top: the bottom's shape."""
    shape = request.bottom_shapes[0]
    group = request.message.shuffle_channel_param.group
    if len(shape) < 2:
        finding = f"bottom has shape {shape_text(shape)}; allowed: 2 or more axes (N, C, ...)"
        raise request.refuse(finding)
    if group < 1 or shape[1] % group:
        finding = f"shuffle_channel_param.group={group} must divide the {shape[1]} channels of the bottom"
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=(shape,), options=ShuffleChannelOptions(group))
