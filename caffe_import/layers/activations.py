"""The layers with a value from a single value: ReLU, Sigmoid, TanH and others.

The top has the bottom's shape, or is the bottom itself (in place). PReLU (learned) and Dropout (random) have separate
files. Source: BVLC Caffe, src/caffe/layers/<type>_layer.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import VALUE_BYTES, LayerTraits, per_top_value
from caffe_import.proto import caffe_pb2

_activation = partial(layer_type, bottoms=(1, 1), tops=(1, 1), in_place=True)
_traits = partial(LayerTraits, arithmetic="float32", axis_order="its bottoms'", reuses_bottom=True)


def _same_shape(
    request: LayerRequest, options: object = None, *, gradient_reads_bottoms: bool, traits: LayerTraits | None = None
) -> LayerDefinition:
    return LayerDefinition(
        top_shapes=request.bottom_shapes, options=options, gradient_reads_bottoms=gradient_reads_bottoms, traits=traits
    )


@_activation(
    "AbsVal", in_place=False, traits=_traits(arithmetic="kept", gradient_keeps="bottoms", reads_overwritten=False)
)
def define_absval(request: LayerRequest) -> LayerDefinition:
    """AbsVal: y = |x|; the gradient at 0 is 0."""
    return _same_shape(request, gradient_reads_bottoms=True)


@_activation("BNLL", traits=_traits(gradient_keeps="bottoms", reads_overwritten=True))
def define_bnll(request: LayerRequest) -> LayerDefinition:
    """BNLL: y = log(1 + exp(x))."""
    return _same_shape(request, gradient_reads_bottoms=True)


@_activation("Sigmoid", traits=_traits(gradient_keeps="tops", reads_overwritten=True))
def define_sigmoid(request: LayerRequest) -> LayerDefinition:
    """Sigmoid: y = 1 / (1 + exp(-x))."""
    return _same_shape(request, gradient_reads_bottoms=False)


@_activation("TanH", traits=_traits(gradient_keeps="tops", reads_overwritten=True))
def define_tanh(request: LayerRequest) -> LayerDefinition:
    """TanH: y = tanh(x)."""
    return _same_shape(request, gradient_reads_bottoms=False)


@dataclass(frozen=True)
class ClipOptions:
    """Resolved options of Clip.

    Attributes:
        min: Lower bound.
        max: Upper bound.
    """

    min: float
    max: float


@_activation("Clip", traits=_traits(gradient_keeps="bottoms", reads_overwritten=True))
def define_clip(request: LayerRequest) -> LayerDefinition:
    """Clip: y = min(max(x, min), max); the gradient passes on the bounds themselves."""
    param = request.message.clip_param
    if not (param.HasField("min") and param.HasField("max")):
        finding = "clip_param needs both min and max"
        raise request.refuse(finding)
    return _same_shape(request, ClipOptions(min=param.min, max=param.max), gradient_reads_bottoms=True)


@dataclass(frozen=True)
class ELUOptions:
    """``alpha`` is how far below zero a very negative x goes."""

    alpha: float


@_activation(
    "ELU", traits=_traits(gradient_keeps="bottoms", reads_overwritten=True, kept_bytes=per_top_value(VALUE_BYTES + 1))
)
def define_elu(request: LayerRequest) -> LayerDefinition:
    """ELU: y = x for x > 0, else alpha (exp(x) - 1); the slope at 0 is alpha."""
    return _same_shape(request, ELUOptions(request.message.elu_param.alpha), gradient_reads_bottoms=True)


@dataclass(frozen=True)
class ScaledBase:
    """Resolved options of Exp and Log.

    Attributes:
        log_base: Natural logarithm of the base; exactly 1 for base -1, which means e.
        scale: Factor of x.
        shift: Added to scale x.
    """

    log_base: float
    scale: float
    shift: float


def _scaled_base(request: LayerRequest, param: caffe_pb2.ExpParameter | caffe_pb2.LogParameter) -> ScaledBase:
    if param.base != -1 and param.base <= 0:
        finding = f"base={param.base}: must be positive, or -1 for e"
        raise request.refuse(finding)
    return ScaledBase(1.0 if param.base == -1 else math.log(param.base), param.scale, param.shift)


@_activation("Exp", traits=_traits(gradient_keeps="tops", reads_overwritten=True))
def define_exp(request: LayerRequest) -> LayerDefinition:
    """Exp: y = base ^ (shift + scale x); base -1 means e."""
    return _same_shape(request, _scaled_base(request, request.message.exp_param), gradient_reads_bottoms=False)


@_activation("Log", traits=_traits(gradient_keeps="bottoms and tops", reads_overwritten=True))
def define_log(request: LayerRequest) -> LayerDefinition:
    """Log: y = log_base(shift + scale x); base -1 means e."""
    return _same_shape(request, _scaled_base(request, request.message.log_param), gradient_reads_bottoms=True)


@dataclass(frozen=True)
class PowerOptions:
    """Resolved options of Power.

    Attributes:
        power: Exponent.
        scale: Factor of x.
        shift: Added to scale x.
    """

    power: float
    scale: float
    shift: float


@_activation("Power", traits=_traits(gradient_keeps="bottoms and tops", reads_overwritten=True))
def define_power(request: LayerRequest) -> LayerDefinition:
    """Power: y = (shift + scale x) ^ power; constant where power x scale = 0."""
    param = request.message.power_param
    return _same_shape(request, PowerOptions(param.power, param.scale, param.shift), gradient_reads_bottoms=True)


@dataclass(frozen=True)
class ReLUOptions:
    """``negative_slope`` multiplies values below zero; it is also the derivative at exactly zero."""

    negative_slope: float


_RELU = _traits(arithmetic="kept", gradient_keeps="tops", reads_overwritten=True)


@_activation("ReLU", traits=_RELU)
def define_relu(request: LayerRequest) -> LayerDefinition:
    """ReLU: y = max(x, 0) + negative_slope min(x, 0)."""
    slope = request.message.relu_param.negative_slope
    traits = _RELU if slope == 0 else replace(_RELU, gradient_keeps="bottoms")
    return _same_shape(request, ReLUOptions(slope), gradient_reads_bottoms=True, traits=traits)


@_activation("ReLU6", traits=_traits(arithmetic="kept", gradient_keeps="tops", reads_overwritten=True))
def define_relu6(request: LayerRequest) -> LayerDefinition:
    """ReLU6: y = min(max(x, 0), 6). Source: MobileNet's forks of Caffe, src/caffe/layers/relu6_layer.cpp."""
    slope = request.message.relu_param.negative_slope
    if slope != 0:
        finding = f"relu_param.negative_slope={slope:g}: the forks differ in what it means here; allowed: 0"
        raise request.refuse(finding)
    return _same_shape(request, gradient_reads_bottoms=True)


@dataclass(frozen=True)
class SwishOptions:
    """``beta`` is the slope inside the sigmoid."""

    beta: float


@_activation(
    "Swish", traits=_traits(gradient_keeps="bottoms", reads_overwritten=True, kept_bytes=per_top_value(VALUE_BYTES))
)
def define_swish(request: LayerRequest) -> LayerDefinition:
    """Swish: y = x sigmoid(beta x)."""
    return _same_shape(request, SwishOptions(request.message.swish_param.beta), gradient_reads_bottoms=False)


@dataclass(frozen=True)
class ThresholdOptions:
    """``threshold`` is what x must exceed."""

    threshold: float


@_activation(
    "Threshold", differentiable_bottoms=False, traits=_traits(gradient_keeps="nothing", reads_overwritten=False)
)
def define_threshold(request: LayerRequest) -> LayerDefinition:
    """Threshold: y = 1 for x > threshold, else 0. The type has no gradient."""
    options = ThresholdOptions(request.message.threshold_param.threshold)
    return _same_shape(request, options, gradient_reads_bottoms=False)
