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
from caffe_import.tf_graph.passes.in_place import Memory, memory_gradient

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
            return Emission((bottom.wrap(formula(bottom.values, options)),))

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


@memory_gradient("BNLL", own_value_is_enough=False)
def _bnll_from_memory(memory: Memory) -> tf.Tensor:
    return memory.gradient * tf.sigmoid(memory.bottom)


@_activation("Sigmoid", _NO_OPTIONS)
def sigmoid(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return 1 / (1 + exp(-x))."""
    return tf.sigmoid(x)


@memory_gradient("Sigmoid", own_value_is_enough=True)
def _sigmoid_from_memory(memory: Memory) -> tf.Tensor:
    return memory.gradient * memory.top * (1 - memory.top)


@_activation("TanH", _NO_OPTIONS)
def tanh(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return the hyperbolic tangent."""
    return tf.tanh(x)


@memory_gradient("TanH", own_value_is_enough=True)
def _tanh_from_memory(memory: Memory) -> tf.Tensor:
    return memory.gradient * (1 - tf.square(memory.top))


@_activation("Clip", ClipOptions)
def clip(x: tf.Tensor, options: ClipOptions) -> tf.Tensor:
    """Return x between its bounds."""
    return tf.clip_by_value(x, options.min, options.max)


@memory_gradient("Clip", own_value_is_enough=False)
def _clip_from_memory(memory: Memory) -> tf.Tensor:
    param = memory.message.clip_param
    inside = (memory.bottom >= param.min) & (memory.bottom <= param.max)
    return tf.where(inside, memory.gradient, 0.0)


@_activation("ELU", ELUOptions)
def elu(x: tf.Tensor, options: ELUOptions) -> tf.Tensor:
    """Return x, or alpha (exp(x) - 1) where x is not positive."""
    # The minimum keeps exp from overflowing in the branch that is not taken (its gradient would be NaN).
    return tf.where(x > 0, x, options.alpha * (tf.exp(tf.minimum(x, 0.0)) - 1.0))


@memory_gradient("ELU", own_value_is_enough=True)
def _elu_from_memory(memory: Memory) -> tf.Tensor:
    return memory.gradient * tf.where(memory.bottom > 0, 1.0, memory.top + memory.message.elu_param.alpha)


@_activation("Exp", ScaledBase)
def exp(x: tf.Tensor, options: ScaledBase) -> tf.Tensor:
    """Return base ^ (scale x + shift)."""
    return tf.exp(options.log_base * (options.scale * x + options.shift))


@memory_gradient("Exp", own_value_is_enough=True)
def _exp_from_memory(memory: Memory) -> tf.Tensor:
    options = memory.layer.definition.options
    assert isinstance(options, ScaledBase)
    return memory.gradient * memory.top * (options.scale * options.log_base)


@_activation("Log", ScaledBase)
def log(x: tf.Tensor, options: ScaledBase) -> tf.Tensor:
    """Return the logarithm of scale x + shift."""
    return tf.math.log(options.scale * x + options.shift) / options.log_base


@memory_gradient("Log", own_value_is_enough=False)
def _log_from_memory(memory: Memory) -> tf.Tensor:
    options = memory.layer.definition.options
    assert isinstance(options, ScaledBase)
    return memory.times_gradient(options.scale / options.log_base / (options.scale * memory.bottom + options.shift))


@_activation("Power", PowerOptions)
def power(x: tf.Tensor, options: PowerOptions) -> tf.Tensor:
    """Return (scale x + shift) ^ power."""
    if options.power * options.scale == 0:
        # Caffe sets the gradient to zero here; x * 0 would make NaN of an infinity.
        constant = tf.constant(1.0) if options.power == 0 else tf.pow(tf.constant(options.shift), options.power)
        return tf.fill(tf.shape(x), constant)
    inner = options.scale * x + options.shift
    return inner if options.power == 1 else tf.pow(inner, options.power)


@memory_gradient("Power", own_value_is_enough=False)
def _power_from_memory(memory: Memory) -> tf.Tensor:
    param = memory.message.power_param
    slope = param.power * param.scale
    if slope == 0 or param.power == 1:
        factor = tf.fill(tf.shape(memory.gradient), tf.constant(slope, tf.float32))
    elif param.power == 2:
        factor = slope * param.scale * memory.bottom + slope * param.shift
    elif param.shift == 0:
        factor = param.power * memory.top / memory.bottom
    else:
        factor = slope * memory.top / (param.scale * memory.bottom + param.shift)
    return memory.times_gradient(factor)


@_activation("ReLU", ReLUOptions)
def relu(x: tf.Tensor, options: ReLUOptions) -> tf.Tensor:
    """Return max(x, 0) + slope min(x, 0); both kernels have Caffe's derivative at zero: 0, or the slope."""
    return tf.nn.relu(x) if options.negative_slope == 0 else tf.nn.leaky_relu(x, options.negative_slope)


# A dropped value takes no gradient and a kept one keeps its sign: the usual ReLU + Dropout loses nothing.
@memory_gradient("ReLU", own_value_is_enough=True, harmless={"ReLU", "Dropout"})
def _relu_from_memory(memory: Memory) -> tf.Tensor:
    slope = memory.message.relu_param.negative_slope
    return tf.where(memory.bottom > 0, memory.gradient, slope * memory.gradient)


@_activation("ReLU6", _NO_OPTIONS)
def relu6(x: tf.Tensor, _: None) -> tf.Tensor:
    """Return min(max(x, 0), 6); the derivative at 0 and at 6 is 0."""
    return tf.nn.relu6(x)


@memory_gradient("ReLU6", own_value_is_enough=True, harmless={"ReLU6", "ReLU"})
def _relu6_from_memory(memory: Memory) -> tf.Tensor:
    return tf.where((memory.bottom > 0) & (memory.bottom < 6), memory.gradient, 0.0)


@_activation("Swish", SwishOptions)
def swish(x: tf.Tensor, options: SwishOptions) -> tf.Tensor:
    """Return x sigmoid(beta x)."""
    return x * tf.sigmoid(options.beta * x)


@memory_gradient("Swish", own_value_is_enough=True)
def _swish_from_memory(memory: Memory) -> tf.Tensor:
    beta = memory.message.swish_param.beta
    scaled = beta * memory.top
    return memory.gradient * (scaled + tf.sigmoid(beta * memory.given) * (1 - scaled))


@_activation("Threshold", ThresholdOptions)
def threshold(x: tf.Tensor, options: ThresholdOptions) -> tf.Tensor:
    """Return 1 where x exceeds the threshold, else 0."""
    return tf.cast(x > options.threshold, tf.float32)
