"""What Convolution and DepthwiseConvolution share: options, top shapes, blobs.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp, BaseConvolutionLayer::LayerSetUp and Reshape;
conv_layer.cpp, ConvolutionLayer::compute_output_shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.axes import require_same_shape
from caffe_import.layer_registry import BlobSpec, LayerDefinition, LayerRequest
from caffe_import.windows import Window, require_window_fits, resolve_window, window_flops


@dataclass(frozen=True)
class ConvolutionOptions:
    """Resolved options.

    Attributes:
        window: Kernel, stride, pad, dilation for each spatial axis, and the channel axis.
        n_outputs: Output channels over all groups.
        group: Channels are cut into this many groups that do not see each other.
        has_bias: Is there a second blob, one value per output channel?
    """

    window: Window
    n_outputs: int
    group: int
    has_bias: bool


def convolution_definition(request: LayerRequest, group: int) -> LayerDefinition:
    """Return the definition of a convolution in ``group`` groups; the rest stands in ``convolution_param``.

    Raises:
        NetError: Unequal bottoms, a window that does not fit, channels that do not divide by the groups.
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
    if param.num_output < 1:
        finding = f"convolution_param.num_output={param.num_output}: must be at least 1"
        raise request.refuse(finding)
    if group < 1 or channels % group or param.num_output % group:
        finding = f"group={group} must divide the {channels} channels of the bottom and num_output={param.num_output}"
        raise request.refuse(finding)
    require_window_fits(request, window, spatial)
    weights = (param.num_output, channels // group, *window.kernel)
    blobs = [BlobSpec(weights, param.weight_filler)]
    if param.bias_term:
        blobs.append(BlobSpec((param.num_output,), param.bias_filler))
    top = (*shape[: window.channel_axis], param.num_output, *window.slid_over(spatial))
    return LayerDefinition(
        top_shapes=(top,) * len(request.bottom_shapes),
        blobs=tuple(blobs),
        options=ConvolutionOptions(window, param.num_output, group, param.bias_term),
        flops=window_flops(top, weights) * len(request.bottom_shapes),
    )
