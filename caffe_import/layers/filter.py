"""Filter: keep the samples whose selector is not zero; the batch shrinks while the net runs."""

from __future__ import annotations

from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@layer_type(
    "Filter",
    bottoms=(2, None),
    tops=(1, None),
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
    no_keras_form="it changes the number of samples in a batch",
)
def define_filter(request: LayerRequest) -> LayerDefinition:
    """One top per bottom but the last, the selector. At set-up the full batch is assumed.

    Source: filter_layer.cpp, FilterLayer::LayerSetUp and Reshape.
    """
    *data, selector = request.bottom_shapes
    if len(request.message.top) != len(data):
        finding = f"{len(data)} bottoms besides the selector and {len(request.message.top)} tops: needs as many"
        raise request.refuse(finding)
    if not selector or prod(selector[1:]) != 1 or any(not shape or shape[0] != selector[0] for shape in data):
        finding = f"selector has shape {selector}, the others {tuple(data)}: needs one selector value per sample"
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=tuple(data))
