"""DepthwiseConvolution: every channel is convolved with a separate kernel.

Source: MobileNet's forks of Caffe, src/caffe/layers/depthwise_conv_layer.cpp; Convolution with a group per channel,
computed faster. Other forks call the same layer ConvolutionDepthwise.
"""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.shapes.convolved_windows import CONVOLUTION_TRAITS, ConvolutionOptions, convolution_definition


@layer_type(
    "ConvolutionDepthwise",
    bottoms=(1, None),
    tops=(1, None),
    traits=CONVOLUTION_TRAITS,
)
@layer_type(
    "DepthwiseConvolution",
    bottoms=(1, None),
    tops=(1, None),
    traits=CONVOLUTION_TRAITS,
)
def define_depthwise_convolution(request: LayerRequest) -> LayerDefinition:
    """Return Convolution's definition; num_output, group and the bottom's channels are one number.

    A file that does not say ``group`` means the channels.
    """
    param = request.message.convolution_param
    group = param.group if param.HasField("group") else max(param.num_output, 1)  # num_output 0 is refused by name
    definition = convolution_definition(request, group)
    options = definition.options
    assert isinstance(options, ConvolutionOptions)
    channels = request.bottom_shapes[0][options.window.channel_axis]
    if not options.group == options.n_outputs == channels:
        finding = (
            f"group={options.group}, num_output={options.n_outputs}, {channels} channels in the bottom: expected one "
            "number; Convolution takes others"
        )
        raise request.refuse(finding)
    return definition
