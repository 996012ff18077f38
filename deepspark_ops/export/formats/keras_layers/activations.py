"""Layers with a value from a single value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from caffe_import.layers.activations import (
    ELUOptions,
    PowerOptions,
    ReLUOptions,
)
from caffe_import.layers.prelu import PReLUOptions
from deepspark_ops.export.formats.keras_layers.registry import FormRequest, keras_form, with_weights
from deepspark_ops.export.formats.keras_layers.value import Value

_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "AbsVal": lambda options, x: ops.abs(x),
    "BNLL": lambda options, x: ops.softplus(x),
    "Clip": lambda options, x: ops.clip(x, options.min, options.max),
    "Exp": lambda options, x: ops.exp(options.log_base * (options.scale * x + options.shift)),
    "Log": lambda options, x: ops.log(options.scale * x + options.shift) / options.log_base,
    "ReLU6": lambda options, x: ops.relu6(x),
    "Sigmoid": lambda options, x: ops.sigmoid(x),
    "Swish": lambda options, x: x * ops.sigmoid(options.beta * x),
    "TanH": lambda options, x: ops.tanh(x),
    "Threshold": lambda options, x: ops.cast(x > options.threshold, "float32"),
}
"""Type -> the top's values, from the layer's options and the bottom's values."""


@keras_form(*_VALUES)
def elementwise(request: FormRequest) -> list[Value]:
    """Apply operations of Keras to each value."""
    bottom = request.bottoms[0]
    return [bottom.wrap(_VALUES[request.layer.type](request.layer.definition.options, bottom.values))]


@keras_form("ReLU")
def relu(request: FormRequest) -> list[Value]:
    """Add ReLU, with its slope below zero."""
    slope = request.options(ReLUOptions).negative_slope
    bottom = request.bottoms[0]
    layer = keras.layers.ReLU(negative_slope=slope, name=request.name)
    return [bottom.wrap(layer(bottom.values))]


@keras_form("PReLU")
def prelu(request: FormRequest) -> list[Value]:
    """Add PReLU with a single slope, or a slope for each channel."""
    options, bottom = request.options(PReLUOptions), request.bottoms[0]
    rank = len(request.shape())
    (slope,) = request.params
    channel_axis = rank - 1 if bottom.is_last else 1
    shared = [axis for axis in range(1, rank) if options.channel_shared or axis != channel_axis]
    layer = keras.layers.PReLU(shared_axes=shared or None, name=request.name)
    slopes = slope.reshape([1 if axis in shared else -1 for axis in range(1, rank)])
    return [bottom.wrap(with_weights(layer, bottom.values, slopes))]


@keras_form("ELU")
def elu(request: FormRequest) -> list[Value]:
    """Add ELU."""
    layer = keras.layers.ELU(alpha=request.options(ELUOptions).alpha, name=request.name)
    bottom = request.bottoms[0]
    return [bottom.wrap(layer(bottom.values))]


@keras_form("Power")
def power(request: FormRequest) -> list[Value]:
    """Compute (scale x + shift) ^ power; a constant where power x scale is 0."""
    options, bottom = request.options(PowerOptions), request.bottoms[0]
    if options.power * options.scale == 0:
        constant = 1.0 if options.power == 0 else float(np.power(np.float32(options.shift), np.float32(options.power)))
        return [bottom.wrap(ops.full_like(bottom.values, constant))]
    inner = options.scale * bottom.values + options.shift
    return [bottom.wrap(inner if options.power == 1 else ops.power(inner, options.power))]


@keras_form("Dropout", "Split")
def same(request: FormRequest) -> list[Value]:
    """Give every top the bottom's values: a finished net drops nothing."""
    return [request.bottoms[0]] * len(request.layer.tops)


@keras_form("Silence")
def silence(request: FormRequest) -> list[Value]:
    """Give nothing."""
    return []
