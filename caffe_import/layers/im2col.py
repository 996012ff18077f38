"""Im2col: every window of an image as a column. Source: BVLC Caffe, src/caffe/layers/im2col_layer.cpp."""

from __future__ import annotations

from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.windows import require_window_fits, resolve_window


@layer_type(
    "Im2col",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms", reads_overwritten=False),
    no_keras_form="no Keras operation gathers windows over every number of axes",
)
def define_im2col(request: LayerRequest) -> LayerDefinition:
    """Top: the channel axis grows by the kernel's size (channel, then tap, row-major); the others are positions."""
    window = resolve_window(request, request.message.convolution_param)
    shape = request.bottom_shapes[0]
    spatial = shape[window.channel_axis + 1 :]
    require_window_fits(request, window, spatial)
    columns = shape[window.channel_axis] * prod(window.kernel)
    top = (*shape[: window.channel_axis], columns, *window.slid_over(spatial))
    return LayerDefinition(top_shapes=(top,), options=window)
