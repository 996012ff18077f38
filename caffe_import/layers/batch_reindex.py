"""BatchReindex: pick, repeat or drop samples by a list of indices."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@layer_type(
    "BatchReindex",
    bottoms=(2, 2),
    tops=(1, 1),
    label_bottoms=(1,),
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
    no_keras_form="it changes the number of samples in a batch",
)
def define_batch_reindex(request: LayerRequest) -> LayerDefinition:
    """Replace the batch axis by the number of indices. Source: batch_reindex_layer.cpp, Reshape."""
    data, index = request.bottom_shapes
    if len(index) != 1 or not data:
        finding = f"bottom shapes {data} and {index}: bottom 1 must be a list of indices, shape (M,)"
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=((index[0], *data[1:]),))
