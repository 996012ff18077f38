"""Gradients that read overwritten memory: what Caffe computes where in-place layers follow one another.

Several neuron layers compute their gradient from what their top (or bottom) holds *at the time of the backward pass*.
If a later in-place layer has overwritten the blob, they read that layer's values; and where bottom and top are one
blob, some write over the incoming gradient before they use it. Frameworks without shared memory compute the true
derivative instead. A net trained in Caffe was trained with Caffe's gradients, so they are reproduced here.

Source: BVLC Caffe @9b89154, src/caffe/layers/<type>_layer.cpp, ``Backward_cpu``; confirmed against recorded gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log

import tensorflow as tf

from caffe_import.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.data_layout import Blob


@dataclass(frozen=True)
class _Memory:
    """What a layer's ``Backward_cpu`` finds.

    Attributes:
        message: The layer's message.
        bottom: The content it reads as its bottom.
        top: The content it reads as its top.
        gradient: The gradient that arrives at the top.
        is_in_place: Are bottom and top one blob, gradients included?
    """

    message: caffe_pb2.LayerParameter
    bottom: tf.Tensor
    top: tf.Tensor
    gradient: tf.Tensor
    is_in_place: bool

    def times_gradient(self, factor: tf.Tensor) -> tf.Tensor:
        """Multiply by the gradient; in place, ``factor`` has already been written over it."""
        return factor * (factor if self.is_in_place else self.gradient)


def _relu(seen: _Memory) -> tf.Tensor:
    slope = seen.message.relu_param.negative_slope
    return tf.where(seen.bottom > 0, seen.gradient, slope * seen.gradient)


def _sigmoid(seen: _Memory) -> tf.Tensor:
    return seen.gradient * seen.top * (1 - seen.top)


def _tanh(seen: _Memory) -> tf.Tensor:
    return seen.gradient * (1 - tf.square(seen.top))


def _elu(seen: _Memory) -> tf.Tensor:
    return seen.gradient * tf.where(seen.bottom > 0, 1.0, seen.top + seen.message.elu_param.alpha)


def _exp(seen: _Memory) -> tf.Tensor:
    param = seen.message.exp_param
    inner_scale = param.scale * (log(param.base) if param.base != -1 else 1.0)
    return seen.gradient * seen.top * inner_scale


def _bnll(seen: _Memory) -> tf.Tensor:
    return seen.gradient * tf.sigmoid(seen.bottom)


def _clip(seen: _Memory) -> tf.Tensor:
    param = seen.message.clip_param
    inside = (seen.bottom >= param.min) & (seen.bottom <= param.max)
    return tf.where(inside, seen.gradient, 0.0)


def _log(seen: _Memory) -> tf.Tensor:
    param = seen.message.log_param
    numerator = param.scale / (log(param.base) if param.base != -1 else 1.0)
    return seen.times_gradient(numerator / (param.scale * seen.bottom + param.shift))


def _power(seen: _Memory) -> tf.Tensor:
    param = seen.message.power_param
    slope = param.power * param.scale
    if slope == 0 or param.power == 1:
        factor = tf.fill(tf.shape(seen.gradient), tf.constant(slope, tf.float32))
    elif param.power == 2:
        factor = slope * param.scale * seen.bottom + slope * param.shift
    elif param.shift == 0:
        factor = param.power * seen.top / seen.bottom
    else:
        factor = slope * seen.top / (param.scale * seen.bottom + param.shift)
    return seen.times_gradient(factor)


@dataclass(frozen=True)
class _Rule:
    """How a type's gradient reads memory.

    Attributes:
        gradient: The gradient, from what is found in memory.
        own_value_is_enough: In place with nothing after it, is it the true derivative?
        harmless: In-place types that may follow without changing it.
    """

    gradient: Callable[[_Memory], tf.Tensor]
    own_value_is_enough: bool
    harmless: frozenset[str] = frozenset()


_RULES: Mapping[str, _Rule] = {
    # A dropped value takes no gradient and a kept one keeps its sign: the usual ReLU + Dropout loses nothing.
    "ReLU": _Rule(_relu, own_value_is_enough=True, harmless=frozenset({"ReLU", "Dropout"})),
    "Sigmoid": _Rule(_sigmoid, own_value_is_enough=True),
    "TanH": _Rule(_tanh, own_value_is_enough=True),
    "ELU": _Rule(_elu, own_value_is_enough=True),
    "Exp": _Rule(_exp, own_value_is_enough=True),
    "BNLL": _Rule(_bnll, own_value_is_enough=False),
    "Clip": _Rule(_clip, own_value_is_enough=False),
    "Log": _Rule(_log, own_value_is_enough=False),
    "Power": _Rule(_power, own_value_is_enough=False),
}


def reads_overwritten_memory(net: NetSpec) -> frozenset[str]:
    """Return the names of the layers whose gradient in Caffe is not the derivative of what they computed."""
    return frozenset(
        layer.name for position, layer in enumerate(net.layers) if layer.tops and _is_affected(net, position, layer)
    )


def _is_affected(net: NetSpec, position: int, layer: LayerSpec) -> bool:
    rule = _RULES.get(layer.type)
    if rule is None:
        return False
    top = layer.tops[0]
    later = {other.type for other in net.layers[position + 1 :] if top in other.tops and top in other.bottoms}
    if later - rule.harmless:
        return True
    return top in layer.bottoms and not rule.own_value_is_enough


def with_memory_gradient(layer: LayerSpec, bottom: Blob, top: Blob, blobs: Mapping[str, Blob]) -> Blob:
    """Return ``top`` with the gradient that Caffe computes for ``layer``.

    Args:
        layer: One of ``reads_overwritten_memory``.
        bottom: What the layer read.
        top: What it computed.
        blobs: The pass's blobs by name, last content each; read when gradients are built, after all layers.
    """
    name, is_in_place = layer.tops[0], layer.tops[0] in layer.bottoms
    channels_last = top.is_channels_last

    @tf.custom_gradient
    def replaced(inputs: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], object]]:
        def gradient(of_top: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            content = blobs[name].channels_last if channels_last else blobs[name].caffe
            seen = _Memory(layer.message, content if is_in_place else inputs, content, of_top, is_in_place)
            return _RULES[layer.type].gradient(seen), tf.zeros_like(outputs)

        return tf.identity(outputs), gradient

    inputs = bottom.channels_last if channels_last else bottom.caffe
    return top.like(replaced(inputs, tf.stop_gradient(top.at_hand)))
