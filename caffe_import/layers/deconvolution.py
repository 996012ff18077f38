"""Deconvolution: the gradient of a convolution as a layer; upsamples.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp and deconv_layer.cpp, compute_output_shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.axes import require_same_shape, shape_text
from caffe_import.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.windows import Window, resolve_window


@dataclass(frozen=True)
class DeconvolutionOptions:
    """Resolved options.

    Attributes:
        window: Kernel, stride, pad, dilation of the convolution whose gradient this is.
        n_outputs: Output channels over all groups.
        group: Channels are cut into this many groups that do not see each other.
        has_bias: Is there a second blob, one value per output channel?
    """

    window: Window
    n_outputs: int
    group: int
    has_bias: bool


@layer_type("Deconvolution", bottoms=(1, None), tops=(1, None))
def define_deconvolution(request: LayerRequest) -> LayerDefinition:
    """Tops: bottom's axes before the channel axis, num_output, stride (size - 1) + extent - 2 pad.

    Weights are (in, out / group, kernel...): in and out swap places compared with Convolution, and with them the
    fillers' fan_in and fan_out.
    """
    param = request.message.convolution_param
    if len(request.message.top) != len(request.bottom_shapes):
        finding = (
            f"has {len(request.bottom_shapes)} bottoms and {len(request.message.top)} tops; expected equal numbers"
        )
        raise request.refuse(finding)
    for position in range(1, len(request.bottom_shapes)):
        require_same_shape(request, 0, position)
    window = resolve_window(request, param)
    shape = request.bottom_shapes[0]
    channels, spatial = shape[window.channel_axis], shape[window.channel_axis + 1 :]
    if param.num_output < 1 or param.group < 1 or channels % param.group or param.num_output % param.group:
        finding = (
            f"group={param.group} must divide the {channels} channels of the bottom and "
            f"num_output={param.num_output}, all at least 1"
        )
        raise request.refuse(finding)
    spread = window.spread_from(spatial)
    if min(spread, default=1) < 1:
        finding = f"pad {shape_text(window.pad)} leaves nothing of the top: its size would be {shape_text(spread)}"
        raise request.refuse(finding)
    weights = (channels, param.num_output // param.group, *window.kernel)
    blobs = [BlobSpec(weights, param.weight_filler)]
    if param.bias_term:
        blobs.append(BlobSpec((param.num_output,), param.bias_filler))
    top = (*shape[: window.channel_axis], param.num_output, *spread)
    return LayerDefinition(
        top_shapes=(top,) * len(request.bottom_shapes),
        blobs=tuple(blobs),
        options=DeconvolutionOptions(window, param.num_output, param.group, param.bias_term),
        flops=2 * prod(shape) * prod(weights[1:]) * len(request.bottom_shapes),
        notes=("fillers take fan_in = count / shape(0), which here is (out / group) x kernel",),
    )
