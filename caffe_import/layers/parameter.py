"""Parameter: a learned blob as a top."""

from __future__ import annotations

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@layer_type(
    "Parameter",
    bottoms=(0, 0),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
    no_keras_form="its top has no batch axis",
)
def define_parameter(request: LayerRequest) -> LayerDefinition:
    """The top is the blob itself. Source: parameter_layer.hpp."""
    shape = tuple(request.message.parameter_param.shape.dim)
    return LayerDefinition(top_shapes=(shape,), blobs=(BlobSpec(shape),))
