"""Split: one blob for several readers. Source: BVLC Caffe, src/caffe/layers/split_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@layer_type(
    "Split",
    bottoms=(1, 1),
    tops=(1, None),
    traits=LayerTraits(
        arithmetic="kept",
        axis_order="its bottoms'",
        gradient_keeps="nothing",
        reads_overwritten=False,
        is_identity=True,
    ),
)
def define_split(request: LayerRequest) -> LayerDefinition:
    """Tops: the bottom, as often as asked; the readers' gradients add up."""
    return LayerDefinition(top_shapes=request.bottom_shapes * len(request.message.top), shares_memory=True)
