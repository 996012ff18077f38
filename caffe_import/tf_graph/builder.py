"""A NetSpec as one pure TensorFlow function: split the parameter vector, run the layers in order, add up the loss.

No variables, no Python state: the inputs of a pass are arguments, the changes are results. Gradients are cut
where Caffe cuts them, so ``tf.gradients`` of the loss gives Caffe's gradients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.devices.fused_layers import fused_scales
from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Shape, find_layer_type
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, orders_weights, registered_emitters
from caffe_import.tf_graph.fixed_weights import in_graph
from caffe_import.tf_graph.passes.in_place import reads_overwritten_memory, with_memory_gradient
from caffe_import.tf_graph.passes.pass_values import ParamTap, PassInputs, PassResults, Tap
from caffe_import.tf_graph.passes.places import Param, Places, places_of, share_of_layer
from caffe_import.tf_graph.passes.precision import Arithmetic, arithmetic_on
from caffe_import.tf_graph.passes.recompute import emit_recomputing

# Odd, so that products with different layer positions stay different modulo 2**32 (Knuth's multiplicative constant).
_LAYER_STRIDE = 2654435761
# Odd too, and no small multiple of the other: two layers of different workers do not get one key.
_WORKER_STRIDE = 0x85EBCA6B


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
class Forward:
    """A forward pass of ``net``; call the object while a graph is traced. Made by ``build_forward``.

    Attributes:
        net: The net.
        plan: How its layers are computed.
        places: Where they are.
        scales: BatchNorm -> the Scale that is computed with it, where no blob is tapped.
        arithmetic: Of the layers in 16 bits; None where the plan's precision is float32.
        is_portable: See ``EmitRequest``.
        has_gradient: May gradients of the pass be asked for?
    """

    net: NetSpec
    plan: ComputePlan
    places: Places
    scales: Mapping[str, LayerSpec]
    arithmetic: Arithmetic | None = None
    is_portable: bool = False
    has_gradient: bool = True

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

    def fixed_entries(self, params: Vector) -> list[Vector]:
        """Return the layout's blobs as arrays, views into ``params``, for graphs of these parameters alone."""
        return list(self.net.params.views(params).values())

    def on_entries(
        self,
        entries: Sequence[Param],
        layer_state: Mapping[str, tf.Tensor],
        seed: tf.Tensor,
        feeds: Mapping[str, tf.Tensor],
        tap: Tap | None = None,
        param_tap: ParamTap | None = None,
    ) -> ForwardResult:
        """Run the net on its blobs.

        Args:
            entries: The layout's blobs in order, Caffe's shapes, float32; sharers read their owner's. Of a split
                layer's blobs the shares, each on its device.
            layer_state: "layer/name" -> tensor from the pass before (``initial_layer_state`` at the start).
            seed: int32 (2,), different for every step, pass and worker; each layer derives its own from it.
            feeds: Blob name -> tensor in Caffe's axis order, for every name in ``fed_blobs``.
            tap: Called with every top when it is produced; consumers read what it returns.
            param_tap: Called with layer, index and content of every parameter blob; the layer reads what it returns.
        """
        scales = {} if tap or param_tap else self.scales
        overwritten = reads_overwritten_memory(self.net) if self.has_gradient else {}
        pass_inputs = PassInputs(seed, feeds, overwritten, tap, param_tap, scales)
        pass_outputs = PassResults(list(entries), dict(layer_state))
        if self.plan.recompute and tap is None:  # who taps blobs wants their gradients
            emit_recomputing(self.net, self.plan.recompute, self._emit_layer, self.places, pass_inputs, pass_outputs)
        else:
            for position, layer in enumerate(self.net.layers):
                self._emit_layer(position, layer, pass_inputs, pass_outputs)
        with self._at_last_loss():
            loss = tf.add_n(pass_outputs.losses) if pass_outputs.losses else tf.zeros((), tf.float32)
        return ForwardResult(pass_outputs.blobs, loss, pass_outputs.updates, pass_outputs.state)

    def _at_last_loss(self) -> AbstractContextManager[Any]:
        losses = [layer for layer in self.net.layers if any(layer.loss_weights)]
        return self.places.on(self.places.of_layer(losses[-1])[0] if losses else None)

    def _emit_layer(self, position: int, layer: LayerSpec, pass_inputs: PassInputs, pass_outputs: PassResults) -> None:
        """Add a layer's operations to the graph, and the results to ``pass_outputs``."""
        first, *_ = self.places.of_layer(layer)
        if _is_fed(layer):
            tops = tuple(Blob.from_caffe(pass_inputs.feeds[top]) for top in layer.tops)
        elif layer.name in pass_outputs.scaled_tops:
            tops = (pass_outputs.scaled_tops.pop(layer.name),)
        else:
            requests = self._requests(position, layer, pass_inputs, pass_outputs)
            with tf.name_scope(scope_of(layer)):
                emissions = [self._emitted(request, device) for request, device in requests]
                tops = self.places.joined(layer, [emission.tops for emission in emissions])
                if position in pass_inputs.overwritten:
                    over = pass_inputs.overwritten[position]
                    bottoms = requests[0][0].bottoms
                    with self.places.on(first):
                        tops = (with_memory_gradient(layer, bottoms, tops[0], pass_outputs.blobs, over),)
            emission = emissions[0]
            if emission.scaled_top is not None:
                pass_outputs.scaled_tops[pass_inputs.scales[layer.name].name] = emission.scaled_top
            pass_outputs.state.update({f"{layer.name}/{name}": tensor for name, tensor in emission.state.items()})
            for index, tensor in emission.param_updates.items():
                # A later layer that shares the blob sees the moved value, as in Caffe's one memory.
                pass_outputs.entries[self.net.params.uses[layer.name, index]] = tensor
                pass_outputs.updates[self.net.params.uses[layer.name, index]] = tensor
        with self.places.on(first):
            tap = pass_inputs.tap
            tapped = [tap(top, blob) if tap else blob for top, blob in zip(layer.tops, tops, strict=True)]
            pass_outputs.blobs.update(zip(layer.tops, tapped, strict=True))
            pass_outputs.losses += _weighted(layer, tapped)

    def _emitted(self, request: EmitRequest, device: int | None) -> Emission:
        with self.places.on(device):
            return self._emit(request)

    def _params_of(self, layer: LayerSpec, pass_outputs: PassResults, tap: ParamTap | None) -> list[list[tf.Tensor]]:
        """Return the parameter blobs that each of the layer's devices reads."""
        of_devices: list[list[tf.Tensor]] = [[] for _ in self.places.of_layer(layer)]
        for index, learns in enumerate(layer.param_propagate_down):
            blob = pass_outputs.entries[self.net.params.uses[layer.name, index]]
            blob = tap(layer, index, blob) if tap else blob
            for params, param in zip(
                of_devices, self.places.param(layer, index, blob, pass_outputs.copies), strict=True
            ):
                params.append(param if learns or not self.has_gradient else tf.stop_gradient(param))
        return of_devices

    def _requests(
        self, position: int, layer: LayerSpec, pass_inputs: PassInputs, pass_outputs: PassResults
    ) -> list[tuple[EmitRequest, int | None]]:
        """Return what the layer's emitter gets on each of the layer's devices."""
        devices, requests = self.places.of_layer(layer), []
        scale = pass_inputs.scales.get(layer.name)
        scale_params = [] if scale is None else self._params_of(scale, pass_outputs, None)[0]
        for number, (device, params) in enumerate(
            zip(devices, self._params_of(layer, pass_outputs, pass_inputs.param_tap), strict=True)
        ):
            with self.places.on(device):
                request = EmitRequest(
                    layer=share_of_layer(layer, number, len(devices)),
                    is_training=layer.message.phase == caffe_pb2.TRAIN,  # a layer's own phase goes before the net's
                    bottoms=self._bottoms(layer, device, pass_outputs),
                    params=params,
                    seed=_seed_of_layer(pass_inputs.seed, position),
                    state={name: pass_outputs.state[f"{layer.name}/{name}"] for name in layer.definition.state_shapes},
                    is_portable=self.is_portable,
                    scale_params=scale_params,
                )
            requests.append((request, device))
        return requests

    def _bottoms(self, layer: LayerSpec, device: int | None, pass_outputs: PassResults) -> list[Blob]:
        bottoms = []
        for index, (name, flows) in enumerate(zip(layer.bottoms, _gradient_flows(layer), strict=True)):
            blob = self.places.bottom(layer, index, pass_outputs.blobs[name], device, pass_outputs.copies)
            bottoms.append(blob if flows or not self.has_gradient else _without_gradient(blob))
        return bottoms

    def _emit(self, request: EmitRequest) -> Emission:
        layer = request.layer
        emit = registered_emitters().get(layer.type)
        if emit is None:
            msg = f'layer "{layer.name}": type {layer.type} can be read but not computed yet'
            raise NetError(msg, layer=layer.name)
        if not self.has_gradient and not orders_weights(layer.type):
            request = replace(request, params=[in_graph(param) for param in request.params])
        return emit(request) if self.arithmetic is None else self.arithmetic.emit(emit, request)


def build_forward(
    net: NetSpec,
    plan: ComputePlan = PLAIN,
    devices: Sequence[str] = (),
    *,
    is_portable: bool = False,
    has_gradient: bool = True,
) -> Forward:
    """Return the net's forward pass, computed as ``plan`` says.

    Args:
        net: The net.
        plan: How its layers are computed.
        devices: TensorFlow's name of each of the plan's devices; empty: its own choice, for a plan of one.
        is_portable: See ``EmitRequest``.
        has_gradient: See ``Forward``.

    Raises:
        NetError: A layer type that no emitter computes; raised before anything is traced.
    """
    emitters = registered_emitters()
    for layer in net.layers:
        if layer.type not in emitters and not layer.definition.is_data:
            msg = f'layer "{layer.name}": type {layer.type} can be read but not computed yet'
            raise NetError(msg, layer=layer.name)
    return Forward(
        net,
        plan,
        places_of(net, plan, devices, fed_blobs(net)),
        fused_scales(net, plan),
        arithmetic_on(plan.precision, devices),
        is_portable,
        has_gradient,
    )


def fed_blobs(net: NetSpec) -> dict[str, Shape]:
    """Return blob name -> full shape for every top that must be fed.

    These are the data layers' tops, but for types that have an emitter: DummyData fills the tops without a feed.
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


def scope_of(layer: LayerSpec) -> str:
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
    return blob.wrap(tf.stop_gradient(blob.values))


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
