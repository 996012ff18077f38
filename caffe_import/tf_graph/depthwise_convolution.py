"""How TensorFlow computes DepthwiseConvolution."""

from __future__ import annotations

from caffe_import.tf_graph.convolution import emit_convolution
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("DepthwiseConvolution")
def emit_depthwise_convolution(request: EmitRequest) -> Emission:
    """Convolve as Convolution does, which takes the depthwise kernel where there is one."""
    return emit_convolution(request)
