"""Gradients from overwritten memory, as Caffe computes gradients of consecutive in-place layers.

Several layers compute the gradient from the content of top (or bottom) *at the time of the backward pass*. If a later
in-place layer has overwritten the blob, the gradient reads the later layer's values. With bottom and top as a single
blob, some layers overwrite the incoming gradient before use. Frameworks without shared memory compute the true
derivative instead. A net trained in Caffe was trained with Caffe's gradients, so they are reproduced here. Eltwise's
product with ``stable_prod_grad: false`` belongs here even alone: the gradient divides the top by each bottom.

Source: BVLC Caffe @9b89154, src/caffe/layers/<type>_layer.cpp, ``Backward_cpu``; confirmed against recorded gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from caffe_import.net.blob_memory import memory_of_blobs
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.data_layout import NCHW_TO_NHWC, Blob
from caffe_import.tf_graph.emitters import registered_emitters
from caffe_import.tf_graph.operations.own_gradient import own_gradient


@dataclass(frozen=True)
class Memory:
    """Memory that a layer's ``Backward_cpu`` reads for the gradient of a bottom.

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


Gradient = Callable[[Memory], tf.Tensor]


@dataclass(frozen=True)
class _Rule:
    """How a type's gradient reads memory; the arguments of ``memory_gradient``."""

    gradient: Gradient
    own_value_is_enough: bool
    harmless: frozenset[str]
    always: bool


_RULES: dict[str, _Rule] = {}


def memory_gradient(
    type_name: str, *, own_value_is_enough: bool, harmless: Collection[str] = (), always: bool = False
) -> Callable[[Gradient], Gradient]:
    """Register the decorated gradient of one bottom, from what is found in memory, for a layer type.

    Args:
        type_name: A type whose traits say ``reads_overwritten``; its emitter is in the same file.
        own_value_is_enough: In place with nothing after it, is it the true derivative?
        harmless: In-place types that may follow without changing it.
        always: Does it differ from the derivative even where nothing was overwritten?

    Raises:
        ValueError: The type already has one.
    """

    def register(gradient: Gradient) -> Gradient:
        if type_name in _RULES:
            msg = f'layer type "{type_name}" has two memory gradients'
            raise ValueError(msg)
        _RULES[type_name] = _Rule(gradient, own_value_is_enough, frozenset(harmless), always)
        return gradient

    return register


def types_with_memory_gradient() -> frozenset[str]:
    """Return the layer types with a memory gradient."""
    registered_emitters()
    return frozenset(_RULES)


def reads_overwritten_memory(net: NetSpec) -> dict[int, str]:
    """Return the layers whose gradient in Caffe is not the derivative of what they computed.

    Returns:
        Position of the layer -> name of the blob whose last content is in the memory of its top. Not its name: layers
        without parameters may share a name.
    """
    registered_emitters()  # loads the files with the rules
    memory = memory_of_blobs(net)
    last_tops: dict[str, str] = {}  # memory -> top of the net's last in-place layer on it
    later_types: dict[str, set[str]] = {}  # memory -> types of the in-place layers behind the present one
    overwritten_by = {}
    for position, layer in reversed(list(enumerate(net.layers))):
        if layer.traits.reads_overwritten:
            rule = _RULES[layer.type]
            top = layer.tops[0]
            is_enough = rule.own_value_is_enough or top not in layer.bottoms
            if rule.always or not is_enough or later_types.get(memory[top], set()) - rule.harmless:
                overwritten_by[position] = last_tops.get(memory[top], top)
        for blob in (top for top in layer.tops if top in layer.bottoms):
            last_tops.setdefault(memory[blob], blob)
            later_types.setdefault(memory[blob], set()).add(layer.type)
    return dict(reversed(overwritten_by.items()))


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

    @own_gradient
    def replaced(outputs: tf.Tensor, *inputs: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], object]]:
        def gradient(of_top: tf.Tensor) -> tuple[tf.Tensor, ...]:
            memory_content, of_top = content(), tf.cast(of_top, tf.float32)
            memories = (
                Memory(
                    layer,
                    layer_input,
                    memory_content if is_in_place else layer_input,
                    memory_content,
                    of_top,
                    is_in_place,
                    channels_last,
                )
                for layer_input in (tf.cast(layer_input, tf.float32) for layer_input in inputs)
            )
            of_inputs = (_RULES[layer.type].gradient(memory) for memory in memories)
            cast = (tf.cast(tensor, layer_input.dtype) for tensor, layer_input in zip(of_inputs, inputs, strict=True))
            return tf.zeros_like(outputs), *cast

        return tf.identity(outputs), gradient

    inputs = [b.channels_last if channels_last else tf.reshape(b.caffe, (-1, *shape[1:])) for b in bottoms]
    return top.wrap(replaced(tf.stop_gradient(top.values), *inputs))
