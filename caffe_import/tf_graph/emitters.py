"""Registry of emitters: how TensorFlow computes a layer type. Mirrors ``layer_registry`` name for name.

An emitter is a pure function while the graph is traced: no ``tf.Variable``, no Python state, no global seed.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

import tensorflow as tf

from caffe_import.net.net_spec import LayerSpec
from caffe_import.tf_graph.data_layout import Blob


@dataclass(frozen=True)
class EmitRequest:
    """Input of an emitter.

    Attributes:
        layer: The layer; its resolved options are ``layer.definition.options``.
        is_training: Does the layer run in phase TRAIN? (Its own ``phase`` field goes before the net's.)
        bottoms: Input blobs, in order.
        params: The layer's parameter blobs in Caffe's shape and order, float32.
        seed: int32 tensor of shape (2,) for stateless random ops, different for every layer, step and pass.
        state: The layer's own named tensors from the pass before.
        is_portable: Use only operations that TensorFlow Lite has, too, even if they are slower in TensorFlow.
        scale_params: The blobs of the Scale that is computed together with a BatchNorm (``fused_scales``); empty
            without such a Scale.
    """

    layer: LayerSpec
    is_training: bool
    bottoms: Sequence[Blob]
    params: Sequence[tf.Tensor]
    seed: tf.Tensor
    state: Mapping[str, tf.Tensor]
    is_portable: bool = False
    scale_params: Sequence[tf.Tensor] = ()


@dataclass(frozen=True)
class Emission:
    """Result of an emitter.

    Attributes:
        tops: One blob per top.
        param_updates: Blob index -> new value, for statistics that the forward pass itself moves (BatchNorm).
        state: The layer's named tensors for the next pass.
        scaled_top: The top of the Scale that is computed too.
    """

    tops: tuple[Blob, ...]
    param_updates: Mapping[int, tf.Tensor] = field(default_factory=dict)
    state: Mapping[str, tf.Tensor] = field(default_factory=dict)
    scaled_top: Blob | None = None


Emit = Callable[[EmitRequest], Emission]
_EMITTERS: dict[str, Emit] = {}
_WITH_OWN_ORDER: set[str] = set()


def emitter(type_name: str, *, orders_weights: bool = False) -> Callable[[Emit], Emit]:
    """Register the decorated function as the emitter of layer type ``type_name``.

    Args:
        type_name: The layer type.
        orders_weights: The emitter computes from fixed weights by ``computed_once``. Other emitters get fixed weights
            from ``in_graph``.

    Raises:
        ValueError: The type already has an emitter.
    """

    def register(emit: Emit) -> Emit:
        registered = _EMITTERS.get(type_name)
        if registered is not None and registered is not emit:
            msg = f'layer type "{type_name}" has two emitters: {registered.__module__} and {emit.__module__}'
            raise ValueError(msg)
        _EMITTERS[type_name] = emit
        if orders_weights:
            _WITH_OWN_ORDER.add(type_name)
        return emit

    return register


@cache
def _load_emitters() -> None:
    package = import_module("caffe_import.tf_graph.layers")
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"caffe_import.tf_graph.layers.{module.name}")


def registered_emitters() -> Mapping[str, Emit]:
    """Return every emitter by layer type, sorted; loads ``caffe_import.tf_graph.layers`` first."""
    _load_emitters()
    return dict(sorted(_EMITTERS.items()))


def orders_weights(type_name: str) -> bool:
    """Return whether the type's emitter computes from fixed weights itself."""
    return type_name in _WITH_OWN_ORDER
