"""Gradients that read overwritten memory: what Caffe computes where in-place layers follow one another.

Several layers compute their gradient from what their top (or bottom) holds *at the time of the backward pass*.
If a later in-place layer has overwritten the blob, they read that layer's values; and where bottom and top are one
blob, some write over the incoming gradient before they use it. Frameworks without shared memory compute the true
derivative instead. A net trained in Caffe was trained with Caffe's gradients, so they are reproduced here. Eltwise's
product with ``stable_prod_grad: false`` belongs here even alone: it divides its top by each bottom.

Source: BVLC Caffe @9b89154, src/caffe/layers/<type>_layer.cpp, ``Backward_cpu``; confirmed against recorded gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from caffe_import.layers.activations import ScaledBase
from caffe_import.layers.eltwise import EltwiseOptions
from caffe_import.layers.lrn import LRNOptions
from caffe_import.layers.mvn import MVNOptions
from caffe_import.layers.softmax import SoftmaxOptions
from caffe_import.net.blob_memory import memory_of_blobs
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob
from caffe_import.tf_graph.layers.lrn import across_channels_gradient


@dataclass(frozen=True)
class _Memory:
    """What a layer's ``Backward_cpu`` finds when it computes the gradient of one of its bottoms.

    Attributes:
        layer: The layer.
        given: What the layer computed from. In memory only where nothing was written over it; Caffe's layers keep what
            they derived from it (deviations, sigmoids) in buffers of their own.
        bottom: The content it reads as its bottom.
        top: The content it reads as its top.
        gradient: The gradient that arrives at the top.
        is_in_place: Are bottom and top one blob, gradients included?
        is_channels_last: The axis order of the tensors, if they have four axes.
    """

    layer: LayerSpec
    given: tf.Tensor
    bottom: tf.Tensor
    top: tf.Tensor
    gradient: tf.Tensor
    is_in_place: bool
    is_channels_last: bool

    @property
    def message(self) -> caffe_pb2.LayerParameter:
        """The layer's message."""
        return self.layer.message

    def axis(self, caffe_axis: int) -> int:
        """Return the axis of the tensors that is ``caffe_axis`` in Caffe's order."""
        return NCHW_TO_NHWC.index(caffe_axis) if self.is_channels_last else caffe_axis

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
    options = seen.layer.definition.options
    assert isinstance(options, ScaledBase)
    return seen.gradient * seen.top * (options.scale * options.log_base)


def _bnll(seen: _Memory) -> tf.Tensor:
    return seen.gradient * tf.sigmoid(seen.bottom)


def _clip(seen: _Memory) -> tf.Tensor:
    param = seen.message.clip_param
    inside = (seen.bottom >= param.min) & (seen.bottom <= param.max)
    return tf.where(inside, seen.gradient, 0.0)


def _log(seen: _Memory) -> tf.Tensor:
    options = seen.layer.definition.options
    assert isinstance(options, ScaledBase)
    return seen.times_gradient(options.scale / options.log_base / (options.scale * seen.bottom + options.shift))


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


def _swish(seen: _Memory) -> tf.Tensor:
    beta = seen.message.swish_param.beta
    scaled = beta * seen.top
    return seen.gradient * (scaled + tf.sigmoid(beta * seen.given) * (1 - scaled))


def _relu6(seen: _Memory) -> tf.Tensor:
    return tf.where((seen.bottom > 0) & (seen.bottom < 6), seen.gradient, 0.0)


def _softmax(seen: _Memory) -> tf.Tensor:
    options = seen.layer.definition.options
    assert isinstance(options, SoftmaxOptions)
    along = tf.reduce_sum(seen.gradient * seen.top, seen.axis(options.axis), keepdims=True)
    return (seen.gradient - along) * seen.top


def _lrn(seen: _Memory) -> tf.Tensor:
    options = seen.layer.definition.options
    assert isinstance(options, LRNOptions)
    return across_channels_gradient(seen.given, seen.top, seen.gradient, options)


def _mvn(seen: _Memory) -> tf.Tensor:
    options = seen.layer.definition.options
    assert isinstance(options, MVNOptions)
    axes = [seen.axis(axis) for axis in ((1, 2, 3) if options.across_channels else (2, 3))]
    if not options.normalize_variance:
        return seen.gradient - tf.reduce_mean(seen.gradient, axes, keepdims=True)
    centred = seen.given - tf.reduce_mean(seen.given, axes, keepdims=True)
    deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), axes, keepdims=True)) + options.eps
    along = tf.reduce_mean(seen.gradient * seen.top, axes, keepdims=True)
    if seen.is_in_place:
        # Each step reads what the one before has written over the gradient; the last, y = y * (-1/n) + x, has y = x.
        n_values = tf.cast(tf.size(seen.top) // tf.size(along), tf.float32)
        return -2 * along * (seen.top + n_values * tf.reduce_mean(seen.top, axes, keepdims=True)) / deviation
    return (seen.gradient - tf.reduce_mean(seen.gradient, axes, keepdims=True) - seen.top * along) / deviation


def _product(seen: _Memory) -> tf.Tensor:
    # 0 / 0 is NaN there too.
    return seen.top / seen.bottom * seen.gradient


@dataclass(frozen=True)
class _Rule:
    """How a type's gradient reads memory.

    Attributes:
        gradient: The gradient of one bottom, from what is found in memory.
        own_value_is_enough: In place with nothing after it, is it the true derivative?
        harmless: In-place types that may follow without changing it.
        always: Does it differ from the derivative even where nothing was overwritten?
    """

    gradient: Callable[[_Memory], tf.Tensor]
    own_value_is_enough: bool
    harmless: frozenset[str] = frozenset()
    always: bool = False


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
    "Swish": _Rule(_swish, own_value_is_enough=True),
    "ReLU6": _Rule(_relu6, own_value_is_enough=True, harmless=frozenset({"ReLU6", "ReLU"})),
    "Softmax": _Rule(_softmax, own_value_is_enough=True),
    "LRN": _Rule(_lrn, own_value_is_enough=True),
    "MVN": _Rule(_mvn, own_value_is_enough=False),
    "Eltwise": _Rule(_product, own_value_is_enough=False, always=True),
}


def reads_overwritten_memory(net: NetSpec) -> dict[str, str]:
    """Return the layers whose gradient in Caffe is not the derivative of what they computed.

    Returns:
        Name of the layer -> name of the blob whose last content is in the memory of its top.
    """
    memory = memory_of_blobs(net)
    found = {}
    for position, layer in enumerate(net.layers):
        rule = _rule_of(layer)
        if rule is None:
            continue
        top = layer.tops[0]
        later = [
            other
            for other in net.layers[position + 1 :]
            if any(memory[blob] == memory[top] for blob in other.tops if blob in other.bottoms)
        ]
        is_enough = rule.own_value_is_enough or top not in layer.bottoms
        if rule.always or not is_enough or {other.type for other in later} - rule.harmless:
            found[layer.name] = later[-1].tops[0] if later else top
    return found


def _rule_of(layer: LayerSpec) -> _Rule | None:
    # Within channels LRN is a net of layers of its own, and its product keeps what it multiplied.
    if isinstance(layer.definition.options, LRNOptions) and layer.definition.options.region == "WITHIN_CHANNEL":
        return None
    if isinstance(layer.definition.options, EltwiseOptions) and not layer.definition.options.divides_top:
        return None
    return _RULES.get(layer.type)


def with_memory_gradient(
    layer: LayerSpec, bottoms: Sequence[Blob], top: Blob, blobs: Mapping[str, Blob], overwritten_by: str
) -> Blob:
    """Return ``top`` with the gradient that Caffe computes for ``layer``.

    Args:
        layer: One of ``reads_overwritten_memory``; its bottoms have as many values as its top.
        bottoms: What the layer read, cut off where no gradient flows.
        top: What it computed.
        blobs: The pass's blobs by name, last content each; read when gradients are built, after all layers.
        overwritten_by: What ``reads_overwritten_memory`` says of the layer.
    """
    is_in_place = layer.tops[0] in layer.bottoms
    channels_last = top.is_channels_last
    shape = layer.definition.top_shapes[0]

    # In float32, as the later layer's content may be, where 16-bit layers and others work in one place.
    def content() -> tf.Tensor:
        blob = blobs[overwritten_by]
        if overwritten_by != layer.tops[0]:
            # Another shape over the same memory.
            blob = Blob.from_caffe(tf.reshape(blob.caffe, (-1, *shape[1:])))
        return tf.cast(blob.channels_last if channels_last else blob.caffe, tf.float32)

    @tf.custom_gradient
    def replaced(outputs: tf.Tensor, *inputs: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], object]]:
        def gradient(of_top: tf.Tensor) -> tuple[tf.Tensor, ...]:
            found, of_top = content(), tf.cast(of_top, tf.float32)
            memories = (
                _Memory(layer, given, found if is_in_place else given, found, of_top, is_in_place, channels_last)
                for given in (tf.cast(given, tf.float32) for given in inputs)
            )
            of_inputs = (_RULES[layer.type].gradient(seen) for seen in memories)
            cast = (tf.cast(tensor, given.dtype) for tensor, given in zip(of_inputs, inputs, strict=True))
            return tf.zeros_like(outputs), *cast

        return tf.identity(outputs), gradient

    inputs = [b.channels_last if channels_last else tf.reshape(b.caffe, (-1, *shape[1:])) for b in bottoms]
    return top.like(replaced(tf.stop_gradient(top.values), *inputs))
