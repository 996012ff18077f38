"""A NetSpec as one pure TensorFlow function: split the parameter vector, run the layers in order, add up the loss.

No variables, no Python state: what a pass needs are its arguments, what it changes are its results. Gradients are cut
where Caffe cuts them, so ``tf.gradients`` of the loss gives Caffe's gradients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Shape, find_layer_type
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, registered_emitters
from caffe_import.tf_graph.in_place import reads_overwritten_memory, with_memory_gradient
from caffe_import.tf_graph.precision import Arithmetic, arithmetic_on

# Odd, so that products with different layer positions stay different modulo 2**32 (Knuth's multiplicative constant).
_LAYER_STRIDE = 2654435761
# Odd too, and no small multiple of the other: two layers of different workers do not get one key.
_WORKER_STRIDE = 0x85EBCA6B


Tap = Callable[[str, Blob], Blob]
ParamTap = Callable[[LayerSpec, int, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class ForwardResult:
    """The results of one forward pass. Tensors of the graph that is being traced.

    Attributes:
        blobs: Every blob by name; of a blob with in-place layers, its last content.
        loss: Sum over all tops of loss_weight times the sum of the top's values; float32 scalar.
        param_updates: Entry position in the layout -> new value, for statistics that the pass itself moved.
        state: "layer/name" -> tensor for the next pass; the keys of ``initial_layer_state``.
    """

    blobs: Mapping[str, Blob]
    loss: tf.Tensor
    param_updates: Mapping[int, tf.Tensor]
    state: Mapping[str, tf.Tensor]


@dataclass(frozen=True)
class _Given:
    """What every layer of a pass may read; ``overwritten`` is ``reads_overwritten_memory`` of the net."""

    seed: tf.Tensor
    feeds: Mapping[str, tf.Tensor]
    overwritten: Mapping[str, str]
    tap: Tap | None
    param_tap: ParamTap | None


@dataclass
class _Made:
    """What the layers of a pass have made so far; each layer reads it and adds to it.

    Attributes:
        entries: The layout's blobs, statistics as the last layer left them.
        state: "layer/name" -> tensor, from the pass before where the layer has not run yet.
        blobs: Every blob that a layer has produced, its last content.
        updates: As ``ForwardResult.param_updates``.
        losses: The weighted loss of each top that has one.
    """

    entries: list[tf.Tensor]
    state: dict[str, tf.Tensor]
    blobs: dict[str, Blob] = field(default_factory=dict)
    updates: dict[int, tf.Tensor] = field(default_factory=dict)
    losses: list[tf.Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Forward:
    """One forward pass of ``net``; call it while a graph is traced. Made by ``build_forward``.

    Attributes:
        net: The net.
        plan: How its layers are computed.
        arithmetic: Of the layers in 16 bits; None where the plan's precision is float32.
    """

    net: NetSpec
    plan: ComputePlan = PLAIN
    arithmetic: Arithmetic | None = None

    def __call__(
        self,
        params: tf.Tensor,
        layer_state: Mapping[str, tf.Tensor],
        seed: tf.Tensor,
        feeds: Mapping[str, tf.Tensor],
    ) -> ForwardResult:
        """Run the net on the whole parameter vector, float32 (n_params,). See ``on_entries`` for the rest."""
        return self.on_entries(self.entries(params), layer_state, seed, feeds)

    def entries(self, params: tf.Tensor) -> list[tf.Tensor]:
        """Cut the vector (n_params,) into the layout's blobs, in Caffe's shapes.

        One ``tf.split``: a slice per blob costs a quarter more, and a gradient with respect to the pieces needs no
        padding with zeros.
        """
        layout = self.net.params.entries
        if not layout:
            return []
        pieces = tf.split(params, [entry.size for entry in layout])
        return [tf.reshape(piece, entry.shape) for piece, entry in zip(pieces, layout, strict=True)]

    def on_entries(
        self,
        entries: Sequence[tf.Tensor],
        layer_state: Mapping[str, tf.Tensor],
        seed: tf.Tensor,
        feeds: Mapping[str, tf.Tensor],
        tap: Tap | None = None,
        param_tap: ParamTap | None = None,
    ) -> ForwardResult:
        """Run the net on its blobs.

        Args:
            entries: The layout's blobs in order, Caffe's shapes, float32; sharers read their owner's.
            layer_state: "layer/name" -> tensor from the pass before (``initial_layer_state`` at the start).
            seed: int32 (2,), different for every step, pass and worker; each layer derives its own from it.
            feeds: Blob name -> tensor in Caffe's axis order, for every name in ``fed_blobs``.
            tap: Called with every top when it is produced; consumers read what it returns.
            param_tap: Called with layer, index and content of every parameter blob; the layer reads what it returns.
        """
        given = _Given(seed, feeds, reads_overwritten_memory(self.net), tap, param_tap)
        made = _Made(list(entries), dict(layer_state))
        for position, layer in enumerate(self.net.layers):
            self._emit_layer(position, layer, given, made)
        loss = tf.add_n(made.losses) if made.losses else tf.zeros((), tf.float32)
        return ForwardResult(made.blobs, loss, made.updates, made.state)

    def _emit_layer(self, position: int, layer: LayerSpec, given: _Given, made: _Made) -> None:
        """Add one layer's operations to the graph, and what they give to ``made``."""
        if _is_fed(layer):
            tops = tuple(Blob.from_caffe(given.feeds[top]) for top in layer.tops)
        else:
            params = self._params_of(layer, made.entries, given.param_tap)
            with tf.name_scope(_scope_of(layer)):
                request = self._request(layer, made.blobs, params, _seed_of_layer(given.seed, position), made.state)
                emission = self._emit(request)
                tops = emission.tops
                if layer.name in given.overwritten:
                    over = given.overwritten[layer.name]
                    tops = (with_memory_gradient(layer, request.bottoms, tops[0], made.blobs, over),)
            made.state.update({f"{layer.name}/{name}": tensor for name, tensor in emission.state.items()})
            for index, tensor in emission.param_updates.items():
                # A later layer that shares the blob sees the moved value, as in Caffe's one memory.
                made.entries[self.net.params.uses[layer.name, index]] = tensor
                made.updates[self.net.params.uses[layer.name, index]] = tensor
        tap = given.tap
        made.blobs.update((top, tap(top, blob) if tap else blob) for top, blob in zip(layer.tops, tops, strict=True))
        made.losses += _weighted(layer, [made.blobs[top] for top in layer.tops])

    def _params_of(self, layer: LayerSpec, entries: Sequence[tf.Tensor], tap: ParamTap | None) -> list[tf.Tensor]:
        params = []
        for index, learns in enumerate(layer.param_propagate_down):
            blob = entries[self.net.params.uses[layer.name, index]]
            blob = tap(layer, index, blob) if tap else blob
            params.append(blob if learns else tf.stop_gradient(blob))
        return params

    def _request(
        self,
        layer: LayerSpec,
        blobs: Mapping[str, Blob],
        params: Sequence[tf.Tensor],
        seed: tf.Tensor,
        state: Mapping[str, tf.Tensor],
    ) -> EmitRequest:
        return EmitRequest(
            layer=layer,
            is_training=layer.message.phase == caffe_pb2.TRAIN,  # a layer's own phase goes before the net's
            bottoms=[
                blobs[name] if flows else _without_gradient(blobs[name])
                for name, flows in zip(layer.bottoms, _gradient_flows(layer), strict=True)
            ],
            params=params,
            seed=seed,
            state={name: state[f"{layer.name}/{name}"] for name in layer.definition.state_shapes},
        )

    def _emit(self, request: EmitRequest) -> Emission:
        layer = request.layer
        emit = registered_emitters().get(layer.type)
        if emit is None:
            msg = f'layer "{layer.name}": type {layer.type} can be read but not computed yet'
            raise NetError(msg, layer=layer.name)
        return emit(request) if self.arithmetic is None else self.arithmetic.emit(emit, request)


def build_forward(net: NetSpec, plan: ComputePlan = PLAIN, devices: Sequence[str] = ()) -> Forward:
    """Return the net's forward pass, computed as ``plan`` says.

    Args:
        net: The net.
        plan: How its layers are computed.
        devices: TensorFlow's names of the plan's devices; empty: its own choice.

    Raises:
        NetError: A layer type that no emitter computes; raised before anything is traced.
    """
    known = registered_emitters()
    for layer in net.layers:
        if layer.type not in known and not layer.definition.is_data:
            msg = f'layer "{layer.name}": type {layer.type} can be read but not computed yet'
            raise NetError(msg, layer=layer.name)
    return Forward(net, plan, arithmetic_on(plan.precision, devices))


def fed_blobs(net: NetSpec) -> dict[str, Shape]:
    """Return blob name -> full shape for every top that must be fed.

    These are the data layers' tops, but for types that have an emitter: DummyData fills its tops by itself.
    """
    return {
        top: shape
        for layer in net.layers
        if _is_fed(layer)
        for top, shape in zip(layer.tops, layer.definition.top_shapes, strict=True)
    }


def initial_layer_state(net: NetSpec) -> dict[str, npt.NDArray[np.float32]]:
    """Return "layer/name" -> zeros: the start of what layers carry from pass to pass, as in Caffe."""
    return {
        f"{layer.name}/{name}": np.zeros(shape, np.float32)
        for layer in net.layers
        for name, shape in layer.definition.state_shapes.items()
    }


def random_key(seed: int, worker: int = 0) -> np.int32:
    """Return the first half of a pass's seed: any integer, made int32, with an odd factor between the workers' keys."""
    return np.int32((seed + worker * _WORKER_STRIDE + 2**31) % 2**32 - 2**31)


def _scope_of(layer: LayerSpec) -> str:
    """Return the name scope of a layer's operations: TensorFlow's errors name the operation, and so the layer."""
    return re.sub(r"[^A-Za-z0-9_./-]+", "_", layer.name).strip("/_-") or layer.type


def _is_fed(layer: LayerSpec) -> bool:
    return layer.definition.is_data and layer.type not in registered_emitters()


def _gradient_flows(layer: LayerSpec) -> tuple[bool, ...]:
    kind = find_layer_type(layer.type, layer=layer.name)
    return tuple(
        flows and kind.differentiable_bottoms and position not in kind.label_bottoms
        for position, flows in enumerate(layer.propagate_down)
    )


def _without_gradient(blob: Blob) -> Blob:
    # Cut at the consumer: the same blob may take gradients from its other users.
    return blob.like(tf.stop_gradient(blob.values))


def _seed_of_layer(seed: tf.Tensor, position: int) -> tf.Tensor:
    offset = np.array([position * _LAYER_STRIDE % 2**32, 0], np.uint32).view(np.int32)
    return seed + tf.constant(offset)


def _weighted(layer: LayerSpec, tops: Sequence[Blob]) -> list[tf.Tensor]:
    losses = []
    for top, weight in zip(tops, layer.loss_weights, strict=True):
        if weight == 0:
            continue
        values = tf.cast(top.values, tf.float32)
        total = values if values.shape.rank == 0 else tf.reduce_sum(values)
        losses.append(total if weight == 1 else weight * total)
    return losses
