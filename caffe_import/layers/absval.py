"""AbsVal: y = |x|; the gradient at 0 is 0."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("AbsVal", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_absval(request: LayerRequest) -> LayerDefinition:
    """Keep the shape. Source: absval_layer.cpp."""
    return LayerDefinition(top_shapes=request.bottom_shapes)
