"""Layers that change an image's size: Interp and Upsample."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from caffe_import.layers.interp import InterpOptions
from caffe_import.layers.upsample import UpsampleOptions
from deepspark_ops.export.formats.keras_layers.registry import Array, FormRequest, keras_form, with_weights
from deepspark_ops.export.formats.keras_layers.value import Value


@keras_form("Interp")
def interp(request: FormRequest) -> list[Value]:
    """Crop the border, then resize each axis by a product with the weights of neighbouring pixels.

    Keras resizes from the centres of pixels; Caffe's Interp keeps the first and last pixel in position.
    """
    options = request.options(InterpOptions)
    image = request.bottoms[0].last
    _, _, height, width = request.shape()
    cut = options.cut_before + options.cut_after
    if cut:
        rows, columns = (slice(options.cut_before, extent - options.cut_after) for extent in (height, width))
        image = image[:, rows, columns, :]
    rows_out, columns_out = options.size
    turned = ops.transpose(image, (0, 3, 1, 2))
    resized = _product(f"{request.name}_columns", turned, _neighbours(width - cut, columns_out))
    resized = _product(f"{request.name}_rows", ops.swapaxes(resized, 2, 3), _neighbours(height - cut, rows_out))
    return [Value(caffe=ops.swapaxes(resized, 2, 3))]


def _product(name: str, values: Any, weights: Array) -> Any:
    return with_weights(keras.layers.Dense(weights.shape[1], use_bias=False, name=name), values, weights)


def _neighbours(n: int, size: int) -> Array:
    """Return weights (n, size): share of each of ``n`` input pixels in each of ``size`` evenly spaced output pixels."""
    positions = np.arange(size) * ((n - 1) / (size - 1) if size > 1 else 0.0)
    shares = 1 - np.abs(positions[np.newaxis, :] - np.arange(n)[:, np.newaxis])
    weights: Array = np.maximum(shares, 0).astype(np.float32)
    return weights


@keras_form("Upsample")
def upsample(request: FormRequest) -> list[Value]:
    """Repeat rows and columns."""
    options = request.layer.definition.options
    if not isinstance(options, UpsampleOptions):
        request.refuse("SegNet's unpooling by a mask has no Keras form")
    layer = keras.layers.UpSampling2D((options.scale_h, options.scale_w), name=request.name)
    return [Value(last=layer(request.bottoms[0].last))]
