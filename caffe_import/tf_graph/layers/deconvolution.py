"""How TensorFlow computes Deconvolution: the transposed kernels, channels-last, one call per group."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from caffe_import.net.layer_registry import Shape
from caffe_import.net.shapes.convolved_windows import ConvolutionOptions
from caffe_import.net.shapes.windows import Window
from caffe_import.tf_graph.data_layout import OIHW_TO_HWIO, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.layers.convolution import convolve
from caffe_import.tf_graph.operations.bias import add_bias, add_bias_to_channels
from caffe_import.tf_graph.operations.padding import is_same_padding

# TensorFlow Lite's converter took more than five minutes to make 21 channels of 1,024 phases int8.
_MOST_PHASES = 64


@emitter("Deconvolution")
def emit_deconvolution(request: EmitRequest) -> Emission:
    """Spread every bottom with the same weights and add the bias."""
    options = request.layer.definition.options
    assert isinstance(options, ConvolutionOptions)
    tops = zip(request.bottoms, request.layer.bottom_shapes, strict=True)
    return Emission(tuple(_deconvolve(bottom, shape, options, request) for bottom, shape in tops))


def _deconvolve(bottom: Blob, shape: Shape, options: ConvolutionOptions, request: EmitRequest) -> Blob:
    weights, window = request.params[0], options.window
    bias = request.params[1] if options.has_bias else None
    if window.channel_axis == 1 and len(window.kernel) == 2 and max(window.dilation) == 1:
        outputs = _spread_nhwc(bottom.channels_last, weights, options, is_portable=request.is_portable)
        return Blob.from_channels_last(outputs if bias is None else add_bias(outputs, bias))
    inputs = tf.reshape(bottom.caffe, (-1, *shape[window.channel_axis :]))
    outputs = _spread_any(inputs, weights, options)
    if bias is not None:
        outputs = add_bias_to_channels(outputs, bias)
    return Blob.from_caffe(tf.reshape(outputs, (-1, *request.layer.definition.top_shapes[0][1:])))


def _spread_nhwc(inputs: tf.Tensor, weights: tf.Tensor, options: ConvolutionOptions, *, is_portable: bool) -> tf.Tensor:
    """Return (N, H', W', out) from ``inputs`` (N, H, W, in) and ``weights`` (in, out / group, kh, kw)."""
    channels, group = inputs.shape[3], options.group
    window = options.window
    # The convolution whose gradient this is has `in` outputs and `out` inputs: its kernels are (kh, kw, out, in).
    kernels = tf.transpose(weights, OIHW_TO_HWIO)
    if group == 1:
        return _conv2d_transpose(inputs, kernels, window, options.n_outputs)
    if group == channels == options.n_outputs:
        by_channel = tf.transpose(kernels, (0, 1, 3, 2))
        if is_portable and prod(window.stride) <= _MOST_PHASES:
            return _spread_by_phases(inputs, by_channel, window)
        if not is_portable and window.stride[0] == window.stride[1]:
            return _depthwise_transpose(inputs, by_channel, window)
    pieces = zip(tf.split(inputs, group, axis=3), tf.split(kernels, group, axis=3), strict=True)
    spread = [_conv2d_transpose(piece, kernel, window, options.n_outputs // group) for piece, kernel in pieces]
    return tf.concat(spread, axis=3)


def _conv2d_transpose(inputs: tf.Tensor, kernels: tf.Tensor, window: Window, n_outputs: int) -> tf.Tensor:
    mode, size, cut = _fit(inputs, window)
    spread = tf.nn.conv2d_transpose(inputs, kernels, (tf.shape(inputs)[0], *size, n_outputs), window.stride, mode)
    return spread[cut] if cut else spread


def _depthwise_transpose(inputs: tf.Tensor, kernels: tf.Tensor, window: Window) -> tf.Tensor:
    """Spread each channel by its own kernel, ``kernels`` (kh, kw, channels, 1): upsampling by bilinear weights."""
    mode, size, cut = _fit(inputs, window)
    shape = (tf.shape(inputs)[0], *size, inputs.shape[3])
    spread = tf.nn.depthwise_conv2d_backprop_input(shape, kernels, inputs, (1, *window.stride, 1), mode)
    return spread[cut] if cut else spread


def _spread_by_phases(inputs: tf.Tensor, kernels: tf.Tensor, window: Window) -> tf.Tensor:
    """Return the same as ``_depthwise_transpose``, by a depthwise convolution, which TensorFlow Lite has.

    The outputs at positions ``phase``, ``phase + stride``, ... are a convolution of the inputs by every stride-th tap.
    The convolution gives all phases of a channel as channels, which are then put between each other.
    """
    (down, right), (rows, columns), channels = window.stride, inputs.shape[1:3], inputs.shape[3]
    tall, wide = -(-window.kernel[0] // down), -(-window.kernel[1] // right)
    padded = [[0, tall * down - window.kernel[0]], [0, wide * right - window.kernel[1]], [0, 0], [0, 0]]
    taps = tf.reshape(tf.pad(kernels, padded), (tall, down, wide, right, channels))
    by_phase = tf.reshape(tf.transpose(tf.reverse(taps, [0, 2]), (0, 2, 4, 1, 3)), (tall, wide, channels, down * right))
    around = [[0, 0], [tall - 1, tall - 1], [wide - 1, wide - 1], [0, 0]]
    phases = tf.nn.depthwise_conv2d(tf.pad(inputs, around), by_phase, (1, 1, 1, 1), "VALID")
    rows, columns = rows + tall - 1, columns + wide - 1
    # Five axes at most: TensorFlow Lite transposes no more everywhere.
    of_rows = tf.reshape(phases, (-1, columns, channels, down, right))
    joined = tf.reshape(tf.transpose(of_rows, (0, 3, 1, 4, 2)), (-1, rows * down, columns * right, channels))
    height, width = window.spread_from(tuple(inputs.shape[1:3]))
    first_row, first_column = window.pad
    return joined[:, first_row : first_row + height, first_column : first_column + width]


def _fit(inputs: tf.Tensor, window: Window) -> tuple[str, tuple[int, int], tuple[slice, ...]]:
    """Return a padding mode, the size to spread to, and what to cut out of that (nothing: empty)."""
    positions = tuple(inputs.shape[1:3])
    height, width = window.spread_from(positions)
    if any(window.pad) and is_same_padding((height, width), window.extent, window.stride, window.pad, positions):
        return "SAME", (height, width), ()
    top, pad_left = window.pad
    full_size = (height + 2 * top, width + 2 * pad_left)
    cut = (slice(None), slice(top, top + height), slice(pad_left, pad_left + width), slice(None))
    return "VALID", full_size, cut if any(window.pad) else ()


def _spread_any(inputs: tf.Tensor, weights: tf.Tensor, options: ConvolutionOptions) -> tf.Tensor:
    """Return (N, out, spatial'...) for any rank and dilation.

    Spreading is convolution of the bottom, with stride - 1 zeros between its values, by the reversed kernel.
    """
    window, group = options.window, options.group
    rank = len(window.kernel)
    spaced = inputs
    for axis, stride in enumerate(window.stride, start=2):
        spaced = _with_zeros_between(spaced, axis, stride)
    # Reversed, with in and out changed over inside each group: (out, in / group, kernel...).
    by_group = tf.reshape(weights, (group, weights.shape[0] // group, *weights.shape[1:]))
    swapped = tf.transpose(by_group, (0, 2, 1, *range(3, 3 + rank)))
    reversed_weights = tf.reverse(
        tf.reshape(swapped, (options.n_outputs, -1, *window.kernel)), axis=list(range(2, 2 + rank))
    )
    full = tuple(extent - 1 for extent in window.extent)
    plain = Window(window.channel_axis, window.kernel, (1,) * rank, full, window.dilation)
    outputs = convolve(spaced, reversed_weights, plain, group)
    ends = tuple(outputs.shape[2:])
    cut = tuple(slice(pad, end - pad) for pad, end in zip(window.pad, ends, strict=True))
    return outputs[(slice(None), slice(None), *cut)]


def _with_zeros_between(values: tf.Tensor, axis: int, stride: int) -> tf.Tensor:
    if stride == 1:
        return values
    shape = list(values.shape)
    spread = tf.pad(
        tf.expand_dims(values, axis + 1), [[0, 0]] * (axis + 1) + [[0, stride - 1]] + [[0, 0]] * (len(shape) - axis - 1)
    )
    joined = tf.reshape(spread, (-1, *shape[1:axis], shape[axis] * stride, *shape[axis + 1 :]))
    return joined[(slice(None),) * axis + (slice(0, shape[axis] * stride - (stride - 1)),)]
