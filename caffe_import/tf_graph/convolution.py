"""How TensorFlow computes Convolution: channels-last, one kernel call per group."""

from __future__ import annotations

from itertools import product

import tensorflow as tf

from caffe_import.layer_registry import Shape
from caffe_import.layers.convolution import ConvolutionOptions
from caffe_import.tf_graph.data_layout import NHWC_TO_NCHW, OIHW_TO_HWIO, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.windows import Window


@emitter("Convolution")
def emit_convolution(request: EmitRequest) -> Emission:
    """Cross-correlate every bottom with the same weights and add the bias."""
    options = request.layer.definition.options
    assert isinstance(options, ConvolutionOptions)
    tops = zip(request.bottoms, request.layer.bottom_shapes, strict=True)
    return Emission(tuple(_convolve(bottom, shape, options, request) for bottom, shape in tops))


def _convolve(bottom: Blob, shape: Shape, options: ConvolutionOptions, request: EmitRequest) -> Blob:
    weights = request.params[0]
    bias = request.params[1] if options.has_bias else None
    window = options.window
    if window.channel_axis == 1 and len(window.kernel) == 2:
        outputs = convolve_nhwc(bottom.channels_last, weights, window, options.group)
        return Blob.from_channels_last(outputs if bias is None else tf.nn.bias_add(outputs, bias))
    # Every other form: all axes before the channels act as one batch axis, the spatial axes follow the channels.
    inputs = tf.reshape(bottom.caffe, (-1, *shape[window.channel_axis :]))
    outputs = convolve_any(inputs, weights, window, options.group)
    if bias is not None:
        outputs += tf.reshape(bias, (options.n_outputs, *(1,) * len(window.kernel)))
    return Blob.from_caffe(tf.reshape(outputs, request.layer.definition.top_shapes[0]))


def convolve_nhwc(inputs: tf.Tensor, weights_oihw: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    """Convolve an image.

    Args:
        inputs: (N, H, W, in), float32.
        weights_oihw: (out, in / group, kh, kw).
        window: Two spatial axes.
        group: As in Caffe; the groups' channels lie one after the other.

    Returns:
        (N, H', W', out), without bias.
    """
    kernels = tf.transpose(weights_oihw, OIHW_TO_HWIO)
    if max(window.dilation) > 1 and max(window.stride) > 1:
        # TensorFlow's CPU kernels have no gradient for this pair.
        outputs = convolve_any(tf.transpose(inputs, NHWC_TO_NCHW), weights_oihw, window, group)
        return tf.transpose(outputs, (0, 2, 3, 1))
    if group == 1:
        return _conv2d(inputs, kernels, window)
    if group == inputs.shape[3] and _depthwise_kernel_takes(window):
        return _depthwise(inputs, kernels, window, group)
    # The CPU kernels compute grouped convolution but have no gradient for it.
    pieces = zip(tf.split(inputs, group, axis=3), tf.split(kernels, group, axis=3), strict=True)
    return tf.concat([_conv2d(piece, kernel, window) for piece, kernel in pieces], axis=3)


def _conv2d(inputs: tf.Tensor, kernels_hwio: tf.Tensor, window: Window) -> tf.Tensor:
    """Convolve one group. The padding never goes to the kernel as explicit numbers.

    The fast gradient kernels do not take explicit paddings (TensorFlow 2.21 then falls back to ones that need three
    times as long), and with dilation there is no gradient at all. SAME is equal where the padding keeps the size;
    elsewhere a pad operation, a small part of the convolution, does it.
    """
    if not any(window.pad):
        return tf.nn.conv2d(inputs, kernels_hwio, window.stride, "VALID", dilations=window.dilation)
    if window.stride == (1, 1) and all(
        2 * pad == (kernel - 1) * dilation
        for pad, kernel, dilation in zip(window.pad, window.kernel, window.dilation, strict=True)
    ):
        return tf.nn.conv2d(inputs, kernels_hwio, 1, "SAME", dilations=window.dilation)
    padded = tf.pad(inputs, _paddings_nhwc(window))
    return tf.nn.conv2d(padded, kernels_hwio, window.stride, "VALID", dilations=window.dilation)


def _depthwise_kernel_takes(window: Window) -> bool:
    return window.stride[0] == window.stride[1] and max(window.dilation) == 1


def _depthwise(inputs: tf.Tensor, kernels_hwio: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    height, width = window.kernel
    # (kh, kw, 1, out) with the outputs of one channel side by side is (kh, kw, in, out / in) in the same memory.
    kernels = tf.reshape(kernels_hwio, (height, width, group, -1))
    # Explicit paddings of this kernel abort the process in TensorFlow 2.21's shape inference (tensor_format.h:428).
    padded = tf.pad(inputs, _paddings_nhwc(window)) if any(window.pad) else inputs
    return tf.nn.depthwise_conv2d(padded, kernels, (1, *window.stride, 1), "VALID")


def _paddings_nhwc(window: Window) -> list[list[int]]:
    return [[0, 0], *([pad, pad] for pad in window.pad), [0, 0]]


def convolve_any(inputs: tf.Tensor, weights: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    """Convolve over any number of axes: for each kernel tap one strided slice and one matrix product.

    Slower than a fused kernel, but right for every rank, dilation, stride and group.

    Args:
        inputs: (N, in, spatial...), float32.
        weights: (out, in / group, kernel...).
        window: As many axes as ``inputs`` has after the channels.
        group: As in Caffe.

    Returns:
        (N, out, spatial'...), without bias.
    """
    spatial = tuple(inputs.shape[2:])
    positions = window.slid_over(spatial)
    rank = len(spatial)
    padded = tf.pad(inputs, [[0, 0], [0, 0], *([pad, pad] for pad in window.pad)]) if any(window.pad) else inputs
    # Channels last inside, so that a tap is a plain matrix product: (N, positions, group, in / group).
    padded = tf.transpose(padded, (0, *range(2, rank + 2), 1))
    n_outputs, n_inputs = weights.shape[0], weights.shape[1]
    taps = tf.reshape(weights, (group, n_outputs // group, n_inputs, -1))
    total = None
    for index, offsets in enumerate(product(*(range(size) for size in window.kernel))):
        begin = [offset * step for offset, step in zip(offsets, window.dilation, strict=True)]
        ends = zip(begin, positions, window.stride, strict=True)
        cut = tuple(slice(b, b + (n - 1) * s + 1, s) for b, n, s in ends)
        seen = tf.reshape(padded[(slice(None), *cut, slice(None))], (-1, group, n_inputs))
        product_of_tap = tf.einsum("pgi,goi->pgo", seen, taps[..., index])
        total = product_of_tap if total is None else total + product_of_tap
    outputs = tf.reshape(total, (-1, *positions, n_outputs))
    return tf.transpose(outputs, (0, rank + 1, *range(1, rank + 1)))
