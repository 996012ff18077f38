"""Pooling in TensorFlow: TensorFlow's kernels if the windows equal Caffe's, else a padded image."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from caffe_import.net.layer_registry import Shape
from caffe_import.net.shapes.pooled_windows import Pair, PoolingOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.padding import is_same_padding

_LOWEST = float(np.finfo(np.float32).min)


@emitter("Pooling")
def emit_pooling(request: EmitRequest) -> Emission:
    """Pool channels-last."""
    options = request.layer.definition.options
    assert isinstance(options, PoolingOptions)
    shape = request.layer.bottom_shapes[0]
    top_shape = request.layer.definition.top_shapes[0]
    inputs = request.bottoms[0].channels_last
    top = Blob.from_channels_last(pool(inputs, options, (top_shape[2], top_shape[3]), request))
    if not options.has_mask:
        return Emission((top,))
    mask = _mask(inputs, options, (shape[2], shape[3]), (top_shape[2], top_shape[3]), shape)
    return Emission((top, Blob.from_channels_last(mask)))


def pool(inputs: tf.Tensor, options: PoolingOptions, pooled: Pair, request: EmitRequest) -> tf.Tensor:
    """Return (N, pooled rows, pooled columns, C) of ``inputs`` (N, H, W, C); ``request`` says phase and seed."""
    size = (inputs.shape[1], inputs.shape[2])
    if options.method == "MAX":
        return max_pool(inputs, options, size, pooled)
    if options.method == "AVE":
        return average_pool(inputs, options, size, pooled)
    windows = _windows(inputs, options, size, pooled)
    return _sampled(windows, request.seed) if request.is_training else _expected(windows)


def max_pool(inputs: tf.Tensor, options: PoolingOptions, size: Pair, pooled: Pair) -> tf.Tensor:
    """Return the maxima (N, H', W', C); at a tie the first in row-major order takes the gradient, as in Caffe."""
    mode, padded = _fit(inputs, options, size, pooled, filling=inputs.dtype.min)
    return tf.nn.max_pool2d(padded, options.kernel, options.stride, mode)


def average_pool(inputs: tf.Tensor, options: PoolingOptions, size: Pair, pooled: Pair) -> tf.Tensor:
    """Return the means (N, H', W', C); the divisor is the window's part inside image and padding.

    TensorFlow's SAME padding divides by the part inside the image: equal without padding, corrected with it.

    SAME is not used where a kernel is larger than the image. Without oneDNN (CPUs without AVX-512 VNNI) TensorFlow 2.21
    gives a wrong gradient there: GetBroadcastSize in ops_util.cc forgets to shorten a window by the front padding.
    """
    if options.is_global:
        return tf.reduce_mean(inputs, axis=(1, 2), keepdims=True)
    is_inside = all(kernel <= extent for kernel, extent in zip(options.kernel, size, strict=True))
    mode, padded = _fit(inputs, options, size, pooled, filling=0.0, may_be_same=is_inside)
    outputs = tf.nn.avg_pool2d(padded, options.kernel, options.stride, mode)
    divided_by = [
        _cells(size[i], pooled[i], options, i, inside_image=True)
        if mode == "SAME"
        else np.full(pooled[i], options.kernel[i])
        for i in (0, 1)
    ]
    caffe_cells = [_cells(size[i], pooled[i], options, i, inside_image=False) for i in (0, 1)]
    if all((divided_by[i] == caffe_cells[i]).all() for i in (0, 1)):
        return outputs
    correction = np.outer(divided_by[0] / caffe_cells[0], divided_by[1] / caffe_cells[1])
    return outputs * tf.constant(correction[np.newaxis, :, :, np.newaxis], tf.float32)


def _cells(size: int, pooled: int, options: PoolingOptions, axis: int, *, inside_image: bool) -> np.ndarray:
    """Return for each window of one axis how many cells are inside the image, or inside image and padding."""
    pad = options.pad[axis]
    start = np.arange(pooled) * options.stride[axis] - pad
    stop = start + options.kernel[axis]
    if inside_image:
        return np.minimum(stop, size) - np.maximum(start, 0)
    return np.minimum(stop, size + pad) - start


def _fit(
    inputs: tf.Tensor, options: PoolingOptions, size: Pair, pooled: Pair, *, filling: float, may_be_same: bool = True
) -> tuple[str, tf.Tensor]:
    """Return a padding mode and an image on which TensorFlow's windows are Caffe's."""
    pad_after = tuple(
        max((pooled[i] - 1) * options.stride[i] + options.kernel[i] - size[i] - options.pad[i], 0) for i in (0, 1)
    )
    if options.pad == (0, 0) and pad_after == (0, 0):
        return "VALID", inputs
    if may_be_same and is_same_padding(size, options.kernel, options.stride, options.pad, pooled):
        return "SAME", inputs
    paddings = [[0, 0], [options.pad[0], pad_after[0]], [options.pad[1], pad_after[1]], [0, 0]]
    return "VALID", tf.pad(inputs, paddings, constant_values=filling)


def _mask(inputs: tf.Tensor, options: PoolingOptions, size: Pair, pooled: Pair, shape: Shape) -> tf.Tensor:
    """Return the place of each maximum in its plane, y * W + x, as float (N, H', W', C); no gradient."""
    stopped = tf.stop_gradient(inputs)
    pad_after = [
        max((pooled[i] - 1) * options.stride[i] + options.kernel[i] - size[i] - options.pad[i], 0) for i in (0, 1)
    ]
    paddings = [[0, 0], [options.pad[0], pad_after[0]], [options.pad[1], pad_after[1]], [0, 0]]
    padded = tf.pad(stopped, paddings, constant_values=_LOWEST)
    _, max_indices = tf.nn.max_pool_with_argmax(padded, options.kernel, options.stride, "VALID")
    padded_width = size[1] + options.pad[1] + pad_after[1]
    cells = max_indices // shape[1]  # without the batch axis: (y * padded_width + x)
    row = cells // padded_width - options.pad[0]
    column = cells % padded_width - options.pad[1]
    return tf.cast(row * size[1] + column, tf.float32)


def _windows(inputs: tf.Tensor, options: PoolingOptions, size: Pair, pooled: Pair) -> tf.Tensor:
    """Return the cells of every window, (N, H', W', kh * kw, C), zeros past the border; row-major inside."""
    pad_after = [max((pooled[i] - 1) * options.stride[i] + options.kernel[i] - size[i], 0) for i in (0, 1)]
    padded = tf.pad(inputs, [[0, 0], [0, pad_after[0]], [0, pad_after[1]], [0, 0]])
    taps = []
    for y in range(options.kernel[0]):
        for x in range(options.kernel[1]):
            rows = slice(y, y + (pooled[0] - 1) * options.stride[0] + 1, options.stride[0])
            columns = slice(x, x + (pooled[1] - 1) * options.stride[1] + 1, options.stride[1])
            taps.append(padded[:, rows, columns, :])
    return tf.stack(taps, axis=3)


def _sampled(windows: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Pick a cell of each window with probability proportional to the cell's value (values are not negative).

    Source: Zeiler and Fergus, "Stochastic pooling" (2013); BVLC Caffe, pooling_layer.cu, StoPoolForwardTrain.
    """
    running = tf.cumsum(tf.stop_gradient(windows), axis=3)
    total = running[:, :, :, -1:, :]
    threshold = tf.random.stateless_uniform(tf.shape(total), seed) * total
    picked = tf.argmax(tf.cast(running >= threshold, tf.int32), axis=3, output_type=tf.int32)
    chosen = tf.one_hot(picked, windows.shape[3], axis=3)
    return tf.reduce_sum(windows * chosen, axis=3)


def _expected(windows: tf.Tensor) -> tf.Tensor:
    """Return the expectation of ``_sampled``: sum of squares over sum; 0 where the sum is not positive.

    Source: BVLC Caffe, pooling_layer.cu, StoPoolForwardTest.
    """
    total = tf.reduce_sum(windows, axis=3)
    is_positive = total > 0
    mean = tf.reduce_sum(tf.square(windows), axis=3) / tf.where(is_positive, total, tf.ones_like(total))
    return tf.where(is_positive, mean, tf.zeros_like(mean))
