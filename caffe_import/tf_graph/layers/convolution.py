"""How TensorFlow computes Convolution: channels-last, one kernel call per group."""

from __future__ import annotations

from itertools import product

import tensorflow as tf

from caffe_import.net.layer_registry import Shape
from caffe_import.net.shapes.convolved_windows import ConvolutionOptions
from caffe_import.net.shapes.windows import Window
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, NHWC_TO_NCHW, OIHW_TO_HWIO, Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.fixed_weights import computed_once, in_graph, is_fixed
from caffe_import.tf_graph.operations.bias import add_bias, add_bias_to_channels
from caffe_import.tf_graph.operations.padding import is_same_padding


@emitter("Convolution", orders_weights=True)
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
        if is_fixed(*request.params):
            return _convolved_by_fixed_weights(bottom, options, *request.params)
        outputs = convolve_nhwc(bottom.channels_last, weights, window, options.group)
        return Blob.from_channels_last(outputs if bias is None else add_bias(outputs, bias))
    # Every other form: all axes before the channels act as one batch axis, the spatial axes follow the channels.
    inputs = tf.reshape(bottom.caffe, (-1, *shape[window.channel_axis :]))
    outputs = convolve(inputs, weights, window, options.group)
    if bias is not None:
        outputs = add_bias_to_channels(outputs, bias)
    return Blob.from_caffe(tf.reshape(outputs, (-1, *request.layer.definition.top_shapes[0][1:])))


def _convolved_by_fixed_weights(
    bottom: Blob, options: ConvolutionOptions, weights: tf.Tensor, bias: tf.Tensor | None = None
) -> Blob:
    """Return a blob whose scaled form costs no pass over the blob: the weights are scaled instead."""

    def convolved(kernels: tf.Tensor, offsets: tf.Tensor | None) -> tf.Tensor:
        outputs = convolve_nhwc(bottom.channels_last, kernels, options.window, options.group)
        return outputs if offsets is None else add_bias(outputs, in_graph(offsets))

    def scaled(factors: tf.Tensor, offsets: tf.Tensor) -> tf.Tensor:
        kernels = computed_once(lambda w, f: w * tf.reshape(f, (-1, 1, 1, 1)), weights, factors)
        if bias is not None:
            offsets = computed_once(lambda b, f, o: b * f + o, bias, factors, offsets)
        return convolved(kernels, offsets)

    return Blob.computed_at_first_use(lambda: convolved(weights, bias), scaled)


def convolve(inputs: tf.Tensor, weights: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    """Convolve over any number of axes, in Caffe's order.

    Args:
        inputs: (N, in, spatial...), float32 or 16 bits, as the weights.
        weights: (out, in / group, kernel...).
        window: As many axes as ``inputs`` has after the channels.
        group: As in Caffe; the groups' channels follow one another.

    Returns:
        (N, out, spatial'...), without bias.
    """
    rank = len(window.kernel)
    if rank == 1:
        # A line is an image of height 1.
        flat = Window(window.channel_axis, *((line_extent, *field) for line_extent, field in _line_fields(window)))
        return convolve(inputs[:, :, tf.newaxis], weights[:, :, tf.newaxis], flat, group)[:, :, 0]
    if rank == 2:
        outputs = convolve_nhwc(tf.transpose(inputs, NCHW_TO_NHWC), weights, window, group)
        return tf.transpose(outputs, NHWC_TO_NCHW)
    if rank == 3 and group == 1 and max(window.dilation) == 1:
        return _conv3d(inputs, weights, window)
    return _convolve_by_taps(inputs, weights, window, group)


def _line_fields(window: Window) -> tuple[tuple[int, Shape], ...]:
    """Return kernel, stride, pad and dilation, each with its value for an axis of extent 1."""
    return (1, window.kernel), (1, window.stride), (0, window.pad), (1, window.dilation)


def _conv3d(inputs: tf.Tensor, weights: tf.Tensor, window: Window) -> tf.Tensor:
    last = tf.transpose(inputs, (0, 2, 3, 4, 1))
    padded = tf.pad(last, [[0, 0], *([pad, pad] for pad in window.pad), [0, 0]]) if any(window.pad) else last
    kernels = tf.transpose(weights, (2, 3, 4, 1, 0))
    return tf.transpose(tf.nn.conv3d(padded, kernels, (1, *window.stride, 1), "VALID"), (0, 4, 1, 2, 3))


def convolve_nhwc(inputs: tf.Tensor, weights_oihw: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    """Convolve an image.

    Args:
        inputs: (N, H, W, in), float32 or 16 bits, as the weights.
        weights_oihw: (out, in / group, kh, kw).
        window: Two spatial axes.
        group: As in Caffe; the groups' channels follow one another.

    Returns:
        (N, H', W', out), without bias.
    """
    if max(window.dilation) > 1 and max(window.stride) > 1:
        # TensorFlow's CPU kernels have no gradient for this pair.
        outputs = _convolve_by_taps(tf.transpose(inputs, NHWC_TO_NCHW), weights_oihw, window, group)
        return tf.transpose(outputs, NCHW_TO_NHWC)
    has_gradient = not is_fixed(weights_oihw)
    kernels = computed_once(lambda weights: tf.transpose(weights, OIHW_TO_HWIO), weights_oihw)
    if group == 1:
        return _conv2d(inputs, in_graph(kernels), window, has_gradient=has_gradient)
    if group == inputs.shape[3] and _depthwise_kernel_takes(window):
        return _depthwise(inputs, kernels, window, group)
    # The CPU kernels compute grouped convolution but have no gradient for it.
    pieces = computed_once(lambda values: tf.split(values, group, axis=3), kernels)
    pairs = zip(tf.split(inputs, group, axis=3), map(in_graph, pieces), strict=True)
    return tf.concat([_conv2d(*pair, window, has_gradient=has_gradient) for pair in pairs], axis=3)


def _conv2d(inputs: tf.Tensor, kernels_hwio: tf.Tensor, window: Window, *, has_gradient: bool) -> tf.Tensor:
    if has_gradient and window.kernel == (1, 1) and window.stride == (1, 1) and window.pad == (0, 0):
        # A product of matrices, measured 10 to 30 % faster with its gradients; it hides bias and ReLU from fusion.
        n_inputs, n_outputs = kernels_hwio.shape[2:]
        rows = tf.matmul(tf.reshape(inputs, (-1, n_inputs)), tf.reshape(kernels_hwio, (n_inputs, n_outputs)))
        return tf.reshape(rows, (-1, *inputs.shape[1:3], n_outputs))
    if max(window.dilation) > 1:
        return _dilated(inputs, kernels_hwio, window)
    mode, padded = _fit(inputs, window)
    return tf.nn.conv2d(padded, kernels_hwio, window.stride, mode)


def _dilated(inputs: tf.Tensor, kernels_hwio: tf.Tensor, window: Window) -> tf.Tensor:
    """Convolve, with stride 1, every d-th pixel as an image of its own.

    The kernels' own dilation has no gradient on CPUs where TensorFlow leaves oneDNN out; this is as fast (31 ms against
    29 ms for 8 images of 32x32x64, 3x3, dilation 2, with gradients).
    """
    size = tuple(inputs.shape[1:3])
    axes = list(zip(size, window.pad, window.dilation, window.kernel, window.slid_over(size), strict=True))
    before_after = [[pad, pad + -(length + 2 * pad) % d] for length, pad, d, _, _ in axes]
    images = tf.space_to_batch(inputs, window.dilation, before_after)
    outputs = tf.nn.conv2d(images, kernels_hwio, 1, "VALID")
    covered = [sum(ends) + length - d * (k - 1) for (length, _, d, k, _), ends in zip(axes, before_after, strict=True)]
    surplus = [[0, extent - n] for extent, (*_, n) in zip(covered, axes, strict=True)]
    return tf.batch_to_space(outputs, window.dilation, surplus)


def _fit(inputs: tf.Tensor, window: Window) -> tuple[str, tf.Tensor]:
    """Return a padding mode and an image (N, H, W, C) on which TensorFlow's windows are Caffe's."""
    if not any(window.pad):
        return "VALID", inputs
    size = tuple(inputs.shape[1:3])
    if is_same_padding(size, window.extent, window.stride, window.pad, window.slid_over(size)):
        return "SAME", inputs
    return "VALID", tf.pad(inputs, [[0, 0], *([pad, pad] for pad in window.pad), [0, 0]])


def _depthwise_kernel_takes(window: Window) -> bool:
    return window.stride[0] == window.stride[1] and max(window.dilation) == 1


def _depthwise(inputs: tf.Tensor, kernels_hwio: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    height, width = window.kernel
    # (kh, kw, 1, out) with the outputs of one channel side by side is (kh, kw, in, out / in) in the same memory.
    kernels = in_graph(computed_once(lambda values: tf.reshape(values, (height, width, group, -1)), kernels_hwio))
    mode, padded = _fit(inputs, window)
    return tf.nn.depthwise_conv2d(padded, kernels, (1, *window.stride, 1), mode)


def _convolve_by_taps(inputs: tf.Tensor, weights: tf.Tensor, window: Window, group: int) -> tf.Tensor:
    """Convolve as ``convolve`` does: for each kernel tap a strided slice and a matrix product.

    Slower than a fused kernel, but right for every rank, dilation, stride and group. The taps of 16-bit values are
    added up in float32.
    """
    dtype = inputs.dtype
    inputs, weights = tf.cast(inputs, tf.float32), tf.cast(weights, tf.float32)
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
        tap_inputs = tf.reshape(padded[(slice(None), *cut, slice(None))], (-1, group, n_inputs))
        product_of_tap = tf.einsum("pgi,goi->pgo", tap_inputs, taps[..., index])
        total = product_of_tap if total is None else total + product_of_tap
    outputs = tf.cast(tf.reshape(total, (-1, *positions, n_outputs)), dtype)
    return tf.transpose(outputs, (0, rank + 1, *range(1, rank + 1)))
