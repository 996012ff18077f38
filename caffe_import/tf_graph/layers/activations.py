"""How TensorFlow computes the layers of ``layers/activations.py``: value by value, in either axis order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from caffe_import.layers.activations import (
    ClipOptions,
    ELUOptions,
    PowerOptions,
    ReLUOptions,
    ScaledBase,
    SwishOptions,
    ThresholdOptions,
)
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter

_NO_OPTIONS = type(None)
_Options = TypeVar("_Options")
_Formula = Callable[[tf.Tensor, _Options], tf.Tensor]


def _activation(type_name: str, options_type: type[_Options]) -> Callable[[_Formula[_Options]], _Formula[_Options]]:
    """Register the decorated formula of a value and the layer's options as the emitter of ``type_name``."""

    def register(formula: _Formula[_Options]) -> _Formula[_Options]:
        @emitter(type_name)
        def emit(request: EmitRequest) -> Emission:
            options = request.layer.definition.options
            assert isinstance(options, options_type)
            bottom = request.bottoms[0]
            return Emission((bottom.like(formula(bottom.values, options)),))

        return formula

    return register


@_activation("AbsVal", _NO_OPTIONS)
def absval(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return |x|."""
    return tf.abs(x)


@_activation("BNLL", _NO_OPTIONS)
def bnll(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return log(1 + exp(x))."""
    return tf.nn.softplus(x)


@_activation("Sigmoid", _NO_OPTIONS)
def sigmoid(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return 1 / (1 + exp(-x))."""
    return tf.sigmoid(x)


@_activation("TanH", _NO_OPTIONS)
def tanh(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return the hyperbolic tangent."""
    return tf.tanh(x)


@_activation("Clip", ClipOptions)
def clip(x: tf.Tensor, options: ClipOptions) -> tf.Tensor:
    """Return x between its bounds."""
    return tf.clip_by_value(x, options.min, options.max)


@_activation("ELU", ELUOptions)
def elu(x: tf.Tensor, options: ELUOptions) -> tf.Tensor:
    """Return x, or alpha (exp(x) - 1) where x is not positive."""
    # The minimum keeps exp from overflowing in the branch that is not taken (its gradient would be NaN).
    return tf.where(x > 0, x, options.alpha * (tf.exp(tf.minimum(x, 0.0)) - 1.0))


@_activation("Exp", ScaledBase)
def exp(x: tf.Tensor, options: ScaledBase) -> tf.Tensor:
    """Return base ^ (scale x + shift)."""
    return tf.exp(options.log_base * (options.scale * x + options.shift))


@_activation("Log", ScaledBase)
def log(x: tf.Tensor, options: ScaledBase) -> tf.Tensor:
    """Return the logarithm of scale x + shift."""
    return tf.math.log(options.scale * x + options.shift) / options.log_base


@_activation("Power", PowerOptions)
def power(x: tf.Tensor, options: PowerOptions) -> tf.Tensor:
    """Return (scale x + shift) ^ power."""
    if options.power * options.scale == 0:
        # Caffe sets the gradient to zero here; x * 0 would make NaN of an infinity.
        constant = tf.constant(1.0) if options.power == 0 else tf.pow(tf.constant(options.shift), options.power)
        return tf.fill(tf.shape(x), constant)
    inner = options.scale * x + options.shift
    return inner if options.power == 1 else tf.pow(inner, options.power)


@_activation("ReLU", ReLUOptions)
def relu(x: tf.Tensor, options: ReLUOptions) -> tf.Tensor:
    """Return max(x, 0) + slope min(x, 0); both kernels have Caffe's derivative at zero: 0, or the slope."""
    return tf.nn.relu(x) if options.negative_slope == 0 else tf.nn.leaky_relu(x, options.negative_slope)


@_activation("ReLU6", _NO_OPTIONS)
def relu6(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return min(max(x, 0), 6); the derivative at 0 and at 6 is 0."""
    return tf.nn.relu6(x)


@_activation("Swish", SwishOptions)
def swish(x: tf.Tensor, options: SwishOptions) -> tf.Tensor:
    """Return x sigmoid(beta x)."""
    return x * tf.sigmoid(options.beta * x)


@_activation("Threshold", ThresholdOptions)
def threshold(x: tf.Tensor, options: ThresholdOptions) -> tf.Tensor:
    """Return 1 where x exceeds the threshold, else 0."""
    return tf.cast(x > options.threshold, tf.float32)
