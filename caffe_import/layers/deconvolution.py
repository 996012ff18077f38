"""Deconvolution: the gradient of a convolution as a layer; upsamples.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp and deconv_layer.cpp.
"""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.shapes.convolved_windows import CONVOLUTION_TRAITS, deconvolution_definition


@layer_type(
    "Deconvolution",
    bottoms=(1, None),
    tops=(1, None),
    traits=CONVOLUTION_TRAITS,
)
def define_deconvolution(request: LayerRequest) -> LayerDefinition:
    """Tops: bottom's axes before the channel axis, num_output, stride (size - 1) + extent - 2 pad.

    Weights are (in, out / group, kernel...): in and out swap places compared with Convolution, and so do the fillers'
    fan_in and fan_out.
    """
    return deconvolution_definition(request)
