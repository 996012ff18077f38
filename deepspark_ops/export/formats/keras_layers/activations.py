"""Layers with a value from a single value."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from caffe_import.layers.activations import (
    ClipOptions,
    ELUOptions,
    PowerOptions,
    ReLUOptions,
    ScaledBase,
    SwishOptions,
    ThresholdOptions,
)
from caffe_import.layers.prelu import PReLUOptions
from deepspark_ops.export.formats.keras_layers.registry import FormRequest, keras_form, with_weights
from deepspark_ops.export.formats.keras_layers.value import Value

_PLAIN = {"AbsVal": ops.abs, "BNLL": ops.softplus, "ReLU6": ops.relu6, "Sigmoid": ops.sigmoid, "TanH": ops.tanh}


@keras_form(*_PLAIN)
def plain(request: FormRequest) -> list[Value]:
    """Apply the operation of Keras that is the same."""
    bottom = request.bottoms[0]
    return [bottom.wrap(_PLAIN[request.layer.type](bottom.values))]


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


@keras_form("Clip")
def clip(request: FormRequest) -> list[Value]:
    """Compute x between its bounds."""
    options, bottom = request.options(ClipOptions), request.bottoms[0]
    return [bottom.wrap(ops.clip(bottom.values, options.min, options.max))]


@keras_form("Exp")
def exp(request: FormRequest) -> list[Value]:
    """Compute base ^ (scale x + shift)."""
    options, bottom = request.options(ScaledBase), request.bottoms[0]
    return [bottom.wrap(ops.exp(options.log_base * (options.scale * bottom.values + options.shift)))]


@keras_form("Log")
def log(request: FormRequest) -> list[Value]:
    """Compute the logarithm of scale x + shift."""
    options, bottom = request.options(ScaledBase), request.bottoms[0]
    return [bottom.wrap(ops.log(options.scale * bottom.values + options.shift) / options.log_base)]


@keras_form("Power")
def power(request: FormRequest) -> list[Value]:
    """Compute (scale x + shift) ^ power; a constant where power x scale is 0."""
    options, bottom = request.options(PowerOptions), request.bottoms[0]
    if options.power * options.scale == 0:
        constant = 1.0 if options.power == 0 else float(np.power(np.float32(options.shift), np.float32(options.power)))
        return [bottom.wrap(ops.full_like(bottom.values, constant))]
    inner = options.scale * bottom.values + options.shift
    return [bottom.wrap(inner if options.power == 1 else ops.power(inner, options.power))]


@keras_form("Swish")
def swish(request: FormRequest) -> list[Value]:
    """Compute x sigmoid(beta x)."""
    options, bottom = request.options(SwishOptions), request.bottoms[0]
    return [bottom.wrap(bottom.values * ops.sigmoid(options.beta * bottom.values))]


@keras_form("Threshold")
def threshold(request: FormRequest) -> list[Value]:
    """Compute 1 where x exceeds the threshold, else 0."""
    bottom = request.bottoms[0]
    return [bottom.wrap(ops.cast(bottom.values > request.options(ThresholdOptions).threshold, "float32"))]


@keras_form("Dropout", "Split")
def same(request: FormRequest) -> list[Value]:
    """Give every top the bottom's values: a finished net drops nothing."""
    return [request.bottoms[0]] * len(request.layer.tops)


@keras_form("Silence")
def silence(request: FormRequest) -> list[Value]:
    """Give nothing."""
    return []
