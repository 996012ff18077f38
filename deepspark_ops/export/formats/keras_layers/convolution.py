"""Convolution, in groups or of each channel, and Deconvolution; over one, two or three axes."""

from __future__ import annotations

from math import prod
from typing import Any

import keras
import numpy as np
from keras import ops

from caffe_import.net.shapes.convolved_windows import ConvolutionOptions
from caffe_import.net.shapes.windows import Window
from deepspark_ops.export.formats.keras_layers.registry import Array, FormRequest, keras_form, with_weights
from deepspark_ops.export.formats.keras_layers.value import Value

_CONVOLUTIONS = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D, 3: keras.layers.Conv3D}
_TRANSPOSED = {1: keras.layers.Conv1DTranspose, 2: keras.layers.Conv2DTranspose, 3: keras.layers.Conv3DTranspose}


@keras_form("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def convolution(request: FormRequest) -> list[Value]:
    """Add one Keras layer for each bottom, all with the same weights."""
    options = _checked(request)
    return [
        _from_last(_convolved(request, options, _to_last(bottom), at), bottom)
        for at, bottom in enumerate(request.bottoms)
    ]


@keras_form("Deconvolution")
def deconvolution(request: FormRequest) -> list[Value]:
    """Add a transposed convolution for each bottom, then cut the padding off."""
    options = _checked(request)
    return [
        _from_last(_spread(request, options, _to_last(bottom), at), bottom) for at, bottom in enumerate(request.bottoms)
    ]


def _checked(request: FormRequest) -> ConvolutionOptions:
    options = request.options(ConvolutionOptions)
    window = options.window
    if window.channel_axis != 1 or len(window.kernel) not in _CONVOLUTIONS:
        axes = f"{len(window.kernel)} axes behind axis {window.channel_axis}"
        request.refuse(f"{axes} have no Keras form; 1 to 3 behind axis 1 do")
    return options


def _to_last(bottom: Value) -> Any:
    if len(bottom.values.shape) == 4:
        return bottom.last
    return ops.transpose(bottom.caffe, (0, *range(2, len(bottom.caffe.shape)), 1))


def _from_last(top: Any, bottom: Value) -> Value:
    rank = len(top.shape)
    return Value(last=top) if rank == 4 else Value(caffe=ops.transpose(top, (0, rank - 1, *range(1, rank - 1))))


def _convolved(request: FormRequest, options: ConvolutionOptions, inputs: Any, at: int) -> Any:
    window, weights = options.window, request.params[0]
    rank = len(window.kernel)
    padded = _padded(inputs, window)
    # Keras has no strides beside dilation: every position is computed then, and some are taken.
    strides = (1,) * rank if max(window.dilation) > 1 else window.stride
    name = request.name if at == 0 else f"{request.name}_{at}"
    kernel = weights.transpose((*range(2, rank + 2), 1, 0))
    if _is_depthwise(options, inputs.shape[-1], strides):
        multiplier = options.n_outputs // options.group
        layer = keras.layers.DepthwiseConv2D(
            window.kernel,
            strides,
            depth_multiplier=multiplier,
            dilation_rate=window.dilation,
            use_bias=options.has_bias,
            name=name,
        )
        kernel = kernel.reshape(*window.kernel, options.group, multiplier)
    else:
        layer = _CONVOLUTIONS[rank](
            options.n_outputs,
            window.kernel,
            strides,
            dilation_rate=window.dilation,
            groups=options.group,
            use_bias=options.has_bias,
            name=name,
        )
    top = with_weights(layer, padded, kernel, *request.params[1:])
    if strides != window.stride:
        top = top[(slice(None), *(slice(None, None, stride) for stride in window.stride))]
    return top


def _is_depthwise(options: ConvolutionOptions, channels: int, strides: tuple[int, ...]) -> bool:
    return len(strides) == 2 and options.group == channels > 1 and len(set(strides)) == 1


def _padded(inputs: Any, window: Window) -> Any:
    if not any(window.pad):
        return inputs
    return ops.pad(inputs, ((0, 0), *((pad, pad) for pad in window.pad), (0, 0)))


def _spread(request: FormRequest, options: ConvolutionOptions, inputs: Any, at: int) -> Any:
    window = options.window
    rank = len(window.kernel)
    kernel = _without_dilation(_without_groups(request.params[0], options.group), window)
    layer = _TRANSPOSED[rank](
        options.n_outputs,
        kernel.shape[2:],
        window.stride,
        use_bias=options.has_bias,
        name=request.name if at == 0 else f"{request.name}_{at}",
    )
    # Caffe's (in, out, kernel...) to Keras's (kernel..., out, in).
    spread = with_weights(layer, inputs, kernel.transpose((*range(2, rank + 2), 1, 0)), *request.params[1:])
    size = window.spread_from(request.shape()[2:])
    # Keras makes a position more than there is where the stride exceeds the kernel.
    cut = tuple(slice(pad, pad + extent) for pad, extent in zip(window.pad, size, strict=True))
    return spread if spread.shape[1:-1] == size else spread[(slice(None), *cut)]


def _without_groups(weights: Array, group: int) -> Array:
    """Return kernels (in, out, kernel...) of a single group, equivalent to kernels of several groups."""
    if group == 1:
        return weights
    n_inputs, per_group = weights.shape[:2]
    dense = np.zeros((n_inputs, group * per_group, *weights.shape[2:]), np.float32)
    for at, block in enumerate(np.split(weights, group)):
        rows = slice(at * len(block), (at + 1) * len(block))
        dense[rows, at * per_group : (at + 1) * per_group] = block
    return dense


def _without_dilation(weights: Array, window: Window) -> Array:
    """Return kernels with zeros between their taps."""
    if prod(window.dilation) == 1:
        return weights
    spaced = np.zeros((*weights.shape[:2], *window.extent), np.float32)
    spaced[(slice(None), slice(None), *(slice(None, None, step) for step in window.dilation))] = weights
    return spaced
