"""How TensorFlow computes DepthwiseConvolution."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.layers.convolution import emit_convolution


@emitter("ConvolutionDepthwise", orders_weights=True)
@emitter("DepthwiseConvolution", orders_weights=True)
def emit_depthwise_convolution(request: EmitRequest) -> Emission:
    """Convolve as Convolution does; Convolution takes the depthwise kernel if TensorFlow has a fitting kernel."""
    return emit_convolution(request)
