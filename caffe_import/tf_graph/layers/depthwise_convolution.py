"""How TensorFlow computes DepthwiseConvolution."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.layers.convolution import emit_convolution


@emitter("ConvolutionDepthwise")
@emitter("DepthwiseConvolution")
def emit_depthwise_convolution(request: EmitRequest) -> Emission:
    """Convolve as Convolution does, which takes the depthwise kernel where there is one."""
    return emit_convolution(request)
