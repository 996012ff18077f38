"""ReLU6: ReLU that stops at 6. Source: MobileNet's forks of Caffe, src/caffe/layers/relu6_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("ReLU6", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_relu6(request: LayerRequest) -> LayerDefinition:
    """Top: min(max(x, 0), 6), the bottom's shape."""
    slope = request.message.relu_param.negative_slope
    if slope != 0:
        finding = f"relu_param.negative_slope={slope:g}: the forks differ in what it means here; allowed: 0"
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=request.bottom_shapes)
