"""Pooling with Caffe's windows: rounded up, cut at the border, averaged over image and padding; and SPP."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from caffe_import.layers.spp import SPPOptions
from caffe_import.net.shapes.pooled_windows import Pair, PoolingOptions
from deepspark_ops.export.formats.keras_layers.registry import FormRequest, keras_form
from deepspark_ops.export.formats.keras_layers.value import Value

_LOWEST = float(np.finfo(np.float32).min)


@keras_form("Pooling")
def pooling(request: FormRequest) -> list[Value]:
    """Pool channels last."""
    options = request.options(PoolingOptions)
    if options.has_mask:
        request.refuse("its second top, the places of the maxima, has no Keras form")
    _, _, height, width = request.top_shape()
    return [Value(last=_pooled(request, options, (height, width), request.name))]


@keras_form("SPP")
def spatial_pyramid(request: FormRequest) -> list[Value]:
    """Pool each level; flatten and join several levels."""
    levels = [
        Value(last=_pooled(request, options, pooled, f"{request.name}_{at}"))
        for at, (options, pooled) in enumerate(request.options(SPPOptions).levels)
    ]
    if len(levels) == 1:
        return levels
    return [Value(caffe=ops.concatenate([keras.layers.Flatten()(level.caffe) for level in levels], axis=1))]


def _pooled(request: FormRequest, options: PoolingOptions, pooled: Pair, name: str) -> Any:
    inputs, size = request.bottoms[0].last, request.shape()[2:]
    trailing_pad = [
        max((pooled[i] - 1) * options.stride[i] + options.kernel[i] - size[i] - options.pad[i], 0) for i in (0, 1)
    ]
    filling = _LOWEST if options.method == "MAX" else 0.0
    if any(options.pad) or any(trailing_pad):
        borders = ((0, 0), (options.pad[0], trailing_pad[0]), (options.pad[1], trailing_pad[1]), (0, 0))
        inputs = ops.pad(inputs, borders, constant_values=filling)
    if options.method == "MAX":
        return keras.layers.MaxPooling2D(options.kernel, options.stride, name=name)(inputs)
    mean = keras.layers.AveragePooling2D(options.kernel, options.stride, name=name)
    if options.method == "AVE":
        return _corrected(mean(inputs), options, (size[0], size[1]), pooled)
    # The expectation of STOCHASTIC: the sum of squares over the sum; 0 where the sum is not positive.
    total = mean(inputs)
    squares = keras.layers.AveragePooling2D(options.kernel, options.stride)(ops.square(inputs))
    return ops.where(total > 0, ops.divide_no_nan(squares, total), 0.0)


def _corrected(means: Any, options: PoolingOptions, size: Pair, pooled: Pair) -> Any:
    """Return means whose divisor is the part of each window inside image and padding."""
    cells = []
    for axis in (0, 1):
        start = np.arange(pooled[axis]) * options.stride[axis] - options.pad[axis]
        stop = np.minimum(start + options.kernel[axis], size[axis] + options.pad[axis])
        cells.append(options.kernel[axis] / (stop - start))
    correction = np.outer(*cells).astype(np.float32)
    return means if (correction == 1).all() else means * correction[np.newaxis, :, :, np.newaxis]
