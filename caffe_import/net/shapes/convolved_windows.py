"""Options, top shapes and blobs of Convolution, DepthwiseConvolution and Deconvolution.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp, BaseConvolutionLayer::LayerSetUp and Reshape;
compute_output_shape in conv_layer.cpp and deconv_layer.cpp.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp, BaseConvolutionLayer::LayerSetUp and Reshape;
compute_output_shape in conv_layer.cpp and deconv_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, Shape
from caffe_import.net.layer_traits import VALUE_BYTES, LayerTraits, n_values
from caffe_import.net.shapes.axes import require_same_shape, shape_text
from caffe_import.net.shapes.windows import Window, require_window_fits, resolve_window, window_flops

CONVOLUTION_TRAITS: Final = LayerTraits(
    arithmetic="16 bit", axis_order="channels last", gradient_keeps="bottoms", reads_overwritten=False
)
_CACHE_BYTES: Final = 30 * 2**20
"""The last-level cache that TensorFlow's kernels expect."""


@dataclass(frozen=True)
class ConvolutionOptions:
    """Resolved options.

    Attributes:
        window: Kernel, stride, pad, dilation for each spatial axis, and the channel axis. Of a deconvolution: those of
            the convolution whose gradient it is.
        n_outputs: Output channels over all groups.
        group: Channels are cut into this many groups, computed independently.
        has_bias: Is there a second blob, one value per output channel?
    """

    window: Window
    n_outputs: int
    group: int
    has_bias: bool


def convolution_definition(request: LayerRequest, group: int) -> LayerDefinition:
    """Return the definition of a convolution in ``group`` groups; the other options are in ``convolution_param``.

    Raises:
        NetError: Unequal bottoms, a window that does not fit, channels that do not divide by the groups.
    """
    window, shape = _checked(request, group)
    spatial = shape[window.channel_axis + 1 :]
    require_window_fits(request, window, spatial)
    weights = (_n_outputs(request), shape[window.channel_axis] // group, *window.kernel)
    top = (*shape[: window.channel_axis], _n_outputs(request), *window.slid_over(spatial))
    definition = _definition(request, window, group, top, weights, flops=window_flops(top, weights))
    if group > 1 and group == shape[window.channel_axis] and max(window.dilation, default=1) == 1:
        return definition  # depthwise: a kernel of TensorFlow for this case
    columns = _column_bytes(_positions(window, spatial), (weights[0] // group, *weights[1:]))
    traits = replace(CONVOLUTION_TRAITS, column_bytes=columns)
    if group > 1:
        traits = replace(traits, gradient_keeps="nothing", kept_bytes=_bytes_of_group_inputs)
    return replace(definition, traits=traits)


def _positions(window: Window, spatial: Shape) -> Shape:
    """Return the positions of the window in one call of TensorFlow's convolution; () where no such call is made."""
    is_product = max(window.kernel + window.stride, default=1) == 1 and not any(window.pad)
    is_by_taps = max(window.dilation, default=1) > 1 and max(window.stride) > 1
    if len(spatial) not in (1, 2) or is_product or is_by_taps:
        return ()
    if max(window.dilation) == 1:
        return window.slid_over(spatial)
    # Every d-th pixel is an image of its own.
    axes = zip(spatial, window.pad, window.dilation, window.kernel, strict=True)
    return tuple(-(-(length + 2 * pad) // d) - (k - 1) for length, pad, d, k in axes)


def _column_bytes(positions: Shape, weights: Shape) -> int:
    """Return the bytes of the columns that TensorFlow's gradients of a convolution make on a CPU without oneDNN.

    A column holds the values under the window. The kernels reserve columns for a number of images. Columns, outputs and
    weights of these images fill the expected cache. The batch may have fewer images.

    Source: TensorFlow, core/kernels/conv_grad_filter_ops.cc, ``Conv2DCustomBackpropFilterOp``.

    Args:
        positions: Positions of the window on each axis of an image; () for a convolution without columns.
        weights: Shape of a group's weights, (out, in, kernel...).
    """
    if not positions:
        return 0
    n_outputs, n_positions, column = weights[0], prod(positions), prod(weights[1:])
    values_of_image = n_positions * column + n_positions * n_outputs + column * n_outputs
    n_images = -(-_CACHE_BYTES // (VALUE_BYTES * values_of_image))
    return VALUE_BYTES * n_images * n_positions * column


def _bytes_of_group_inputs(bottoms: Sequence[Shape], _tops: Sequence[Shape]) -> int:
    """Return the bytes of the copies that the groups' kernels read, and the gradient of the weights reads again."""
    return VALUE_BYTES * n_values(bottoms)


def deconvolution_definition(request: LayerRequest) -> LayerDefinition:
    """Return the definition of a deconvolution.

    Raises:
        NetError: Unequal bottoms, padding that leaves nothing, channels that do not divide by the groups.
    """
    group = request.message.convolution_param.group
    window, shape = _checked(request, group)
    spread = window.spread_from(shape[window.channel_axis + 1 :])
    if min(spread, default=1) < 1:
        finding = f"pad {shape_text(window.pad)} leaves nothing of the top: its size would be {shape_text(spread)}"
        raise request.refuse(finding)
    weights = (shape[window.channel_axis], _n_outputs(request) // group, *window.kernel)
    top = (*shape[: window.channel_axis], _n_outputs(request), *spread)
    notes = ("fillers take fan_in = count / shape(0), which here is (out / group) x kernel",)
    flops = 2 * prod(shape) * prod(weights[1:])
    definition = _definition(request, window, group, top, weights, flops=flops, notes=notes)
    is_image = len(spread) == 2 and max(window.dilation) == 1
    if not is_image or 1 < group == shape[window.channel_axis] == _n_outputs(request):
        return definition
    columns = _column_bytes(shape[window.channel_axis + 1 :], (weights[0] // group, *weights[1:]))
    return replace(definition, traits=replace(CONVOLUTION_TRAITS, column_bytes=columns))


def _n_outputs(request: LayerRequest) -> int:
    return request.message.convolution_param.num_output


def _checked(request: LayerRequest, group: int) -> tuple[Window, Shape]:
    """Return the window and the common shape of the bottoms."""
    if len(request.message.top) != len(request.bottom_shapes):
        finding = (
            f"has {len(request.bottom_shapes)} bottoms and {len(request.message.top)} tops; expected equal numbers"
        )
        raise request.refuse(finding)
    for position in range(1, len(request.bottom_shapes)):
        require_same_shape(request, 0, position)
    window = resolve_window(request, request.message.convolution_param)
    shape = request.bottom_shapes[0]
    n_outputs, channels = _n_outputs(request), shape[window.channel_axis]
    if n_outputs < 1:
        finding = f"convolution_param.num_output={n_outputs}: must be at least 1"
        raise request.refuse(finding)
    if group < 1 or channels % group or n_outputs % group:
        finding = f"group={group} must divide the {channels} channels of the bottom and num_output={n_outputs}"
        raise request.refuse(finding)
    return window, shape


def _definition(
    request: LayerRequest,
    window: Window,
    group: int,
    top: Shape,
    weights: Shape,
    *,
    flops: int,
    notes: tuple[str, ...] = (),
) -> LayerDefinition:
    param = request.message.convolution_param
    blobs = [BlobSpec(weights, param.weight_filler)]
    if param.bias_term:
        blobs.append(BlobSpec((param.num_output,), param.bias_filler))
    n_bottoms = len(request.bottom_shapes)
    return LayerDefinition(
        top_shapes=(top,) * n_bottoms,
        blobs=tuple(blobs),
        options=ConvolutionOptions(window, param.num_output, group, param.bias_term),
        flops=flops * n_bottoms,
        notes=notes,
        gradient_reads_bottoms=True,
    )
