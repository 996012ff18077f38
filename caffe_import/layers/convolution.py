"""Convolution over any number of spatial axes.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp and conv_layer.cpp.
"""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.shapes.convolved_windows import CONVOLUTION_TRAITS, convolution_definition


@layer_type(
    "Convolution",
    bottoms=(1, None),
    tops=(1, None),
    traits=CONVOLUTION_TRAITS,
)
def define_convolution(request: LayerRequest) -> LayerDefinition:
    """Tops: bottom's axes before the channel axis, num_output, floor((size + 2 pad - extent) / stride) + 1.

    Several bottoms of one shape share the weights, top i from bottom i. ``force_nd_im2col`` and ``engine``
    choose an implementation in Caffe, never a value: they are accepted and ignored.
    """
    return convolution_definition(request, request.message.convolution_param.group)
