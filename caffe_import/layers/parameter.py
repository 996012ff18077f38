"""Parameter: a learned blob as a top."""

from __future__ import annotations

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type


@layer_type("Parameter", bottoms=(0, 0), tops=(1, 1))
def define_parameter(request: LayerRequest) -> LayerDefinition:
    """The top is the blob itself. Source: parameter_layer.hpp."""
    shape = tuple(request.message.parameter_param.shape.dim)
    return LayerDefinition(top_shapes=(shape,), blobs=(BlobSpec(shape),))
