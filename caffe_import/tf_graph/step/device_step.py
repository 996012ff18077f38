"""The graph of one training step on several devices: passes that run at the same time, their sum, one update.

Replicas deal the passes out over devices, as Caffe's ``caffe train -gpu 0,1`` does: device k modulo n_replicas computes
pass k with a copy of the parameters that device 0 holds, made once per step; gradients are summed on each device and
then on device 0. A placement sends every pass through all devices: a pipeline (Huang et al. 2019,
"GPipe"), in which a pass begins only when the one n_devices before it has left its gradients, so that no device keeps
the activations of more passes than that (as in Narayanan et al. 2019, "PipeDream", 1F1B).

There is no cycle in this graph, so passes are inlined and their operations run as soon as what they read is there. A
loop over steps would carry the parameters through one device; it is in ``device_calls``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import ParamEntry, Vector
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.loss_scaling import all_finite
from caffe_import.tf_graph.step.one_pass import Pass, PassGraph, joined_shares, moved
from caffe_import.tf_graph.step.solver_update import UpdateGraph
from caffe_import.tf_graph.step.step_graph import debug_of_update

Tensors = list[tf.Tensor]


@dataclass(frozen=True)
class DeviceStepGraph:
    """The graph of one step; its arguments and results stay on their devices.

    Attributes:
        solver: Its iter_size counts the passes of all replicas.
        plan: More than one device.
        devices: TensorFlow's name of each.
        passes: Makes a pass.
        update: Makes the update.
    """

    solver: SolverSpec
    plan: ComputePlan
    devices: Sequence[str]
    passes: PassGraph
    update: UpdateGraph

    def run(self, given: StepArguments) -> Any:
        """Return what one step leaves and reports.

        These are pieces, slots, layer state, loss, outputs, norm, rows, debug's two arrays if asked, and where the loss
        is scaled whether the step was made: one whose gradient is not finite leaves pieces, slots and the replicas' own
        statistics as they were.
        """
        done = self._passes(given)
        before = self._with_statistics(given.pieces, done.statistics)
        gradients, norm = self.update.clipped(done.gradients)
        pieces, slots, steps = self.update.update(before, gradients, given.history, given.rates[0], given.updates + 1)
        is_made = self._is_made(given, done.gradients)
        carried = dict(done.layer_state)
        for finite in is_made:
            pieces = self._chosen(finite, pieces, given.pieces)
            slots = [self._chosen(finite, *pair) for pair in zip(slots, given.history, strict=True)]
            steps = {k: tf.where(finite, step, 0.0) for k, step in steps.items()}
            carried |= self._chosen_statistics(finite, carried, given.layer_state)
        debug = [done.debug, self._debug_of_update(before, steps)] if self.passes.with_debug else []
        return pieces, slots, carried, done.loss, done.outputs, norm, done.n_rows, debug, is_made

    def gradient(self, given: StepArguments) -> Any:
        """Return gradients by piece, pieces, layer state, loss, outputs, rows, debug and finiteness of the passes."""
        done = self._passes(given)
        by_place = dict(zip((k for k, _ in self.passes.pieces.of_kind("weight")), done.gradients, strict=True))
        gradients = [by_place.get(k, tf.zeros_like(piece)) for k, piece in enumerate(given.pieces)]
        debug = [done.debug] if self.passes.with_debug else []
        pieces = self._with_statistics(given.pieces, done.statistics)
        is_made = self._is_made(given, done.gradients)
        return gradients, pieces, done.layer_state, done.loss, done.outputs, done.n_rows, debug, is_made

    def apply(self, given: StepArguments) -> Any:
        """Return pieces and slots after the update by given gradients, one per piece."""
        gradients, _ = self.update.clipped([given.gradients[k] for k, _ in self.passes.pieces.of_kind("weight")])
        pieces, slots, _ = self.update.update(
            list(given.pieces), gradients, given.history, given.rates[0], given.updates + 1
        )
        return pieces, slots

    def on(self, device: int) -> AbstractContextManager[Any]:
        """Return the scope of a device's operations."""
        scope: AbstractContextManager[Any] = tf.device(self.devices[device])
        return scope

    def _is_made(self, given: StepArguments, gradients: Tensors) -> list[tf.Tensor]:
        """Return whether all gradients are finite, where the loss is scaled; else nothing."""
        if given.loss_scale is None:
            return []
        found = []
        for gradient, (_, piece) in zip(gradients, self.passes.pieces.of_kind("weight"), strict=True):
            with self.on(piece.device):
                found.append(all_finite([gradient]))
        return [tf.reduce_all(found)]

    def _chosen(self, is_made: tf.Tensor, after: Sequence[tf.Tensor], before: Sequence[tf.Tensor]) -> Tensors:
        found = []
        for piece, new, old in zip(self.passes.pieces.pieces, after, before, strict=True):
            with self.on(piece.device):
                found.append(tf.where(is_made, new, old))
        return found

    def _chosen_statistics(
        self, is_made: tf.Tensor, after: Mapping[str, tf.Tensor], before: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Return the statistics of further replicas, by the keys of ``carried_state``."""
        found = {}
        for replica in range(1, self.plan.n_replicas):
            for _, piece in self.passes.pieces.of_kind("statistic"):
                key = statistic_key(piece.entry, replica)
                with self.on(replica):
                    found[key] = tf.where(is_made, after[key], before[key])
        return found

    def _passes(self, given: StepArguments) -> Pass:
        """Return the sum of the step's passes; layer state of all replicas, statistics of the first."""
        n_replicas, n_passes = self.plan.n_replicas, self.solver.iter_size
        passes = [tf.function(partial(self._one_pass, replica), autograph=False) for replica in range(n_replicas)]
        scale = () if given.loss_scale is None else (given.loss_scale,)
        pieces = [self._pieces_of(replica, given) for replica in range(n_replicas)]
        states = [self._state_of(replica, given.layer_state) for replica in range(n_replicas)]
        statistics: list[dict[int, tf.Tensor]] = [{} for _ in range(n_replicas)]
        sums: list[Tensors] = [self._nothing(replica) for replica in range(n_replicas)]
        done: list[Pass] = []
        ends: list[Any] = []
        for k in range(n_passes):
            replica = k % n_replicas
            gate = ends[k - self.plan.n_devices : k - self.plan.n_devices + 1] if k >= self.plan.n_devices else []
            seed, batch = self._given_to(k, given, gate)
            with self._on_replica(replica):
                before = sums[replica] if self.passes.with_debug else []
                one = Pass(*passes[replica](pieces[replica], states[replica], seed, batch, before, *scale))
            pieces[replica], states[replica] = moved(pieces[replica], one.statistics), one.layer_state
            statistics[replica] = one.statistics
            sums[replica] = self._added(replica, sums[replica], one.gradients) if k >= n_replicas else one.gradients
            ends.append(self._end(replica, sums[replica]))
            done.append(one)
        gradients = sums[0]
        for more in sums[1:]:
            gradients = self._added(0, gradients, more)
        with self.on(0):
            loss = tf.add_n([one.loss for one in done]) / n_passes
            debug = tf.stack([one.debug for one in done])
        carried = self._carried(states, statistics, given.layer_state)
        return done[-1]._replace(
            gradients=gradients, loss=loss, statistics=statistics[0], layer_state=carried, debug=debug
        )

    def _one_pass(self, replica: int, *given: Any) -> Pass:
        """Return a pass, of several replicas with names of its own.

        A loop's gradient is colocated with operations by name: of equal names TensorFlow would put the loops of two
        replicas on one device.
        """
        with tf.name_scope(f"replica{replica}") if self.plan.n_replicas > 1 else nullcontext():
            return self.passes.one_pass(*given)

    def _given_to(self, k: int, given: StepArguments, gate: Sequence[Any]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Return seed and batch of pass ``k``, which are there once ``gate`` is."""
        batch = {}
        with tf.control_dependencies(gate):
            step = tf.cast(given.step, tf.int32)
            seed = tf.stack([given.key, step * self.solver.iter_size + k])
            for name, device in feed_devices(self.passes, k % self.plan.n_replicas).items():
                with self.on(device):
                    batch[name] = tf.identity(given.feeds[feed_key(name, k)])
        return seed, batch

    def _on_replica(self, replica: int) -> AbstractContextManager[Any]:
        """Return the scope of a replica's passes; a placed pass has its own."""
        scope: AbstractContextManager[Any] = tf.compat.v1.get_default_graph().device(_where_its_input_is)
        return self.on(replica) if self.plan.n_replicas > 1 else scope

    def _device(self, replica: int, device: int) -> int:
        return replica if self.plan.n_replicas > 1 else device

    def _pieces_of(self, replica: int, given: StepArguments) -> Tensors:
        """Return the parameters of a replica: copies, but for statistics, which are its own."""
        if replica == 0:
            return list(given.pieces)
        with self.on(replica):
            return [
                given.layer_state[statistic_key(piece.entry, replica)]
                if piece.entry.kind == "statistic"
                else tf.identity(tensor)
                for piece, tensor in zip(self.passes.pieces.pieces, given.pieces, strict=True)
            ]

    def _state_of(self, replica: int, layer_state: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: layer_state[state_key(name, replica)] for name in initial_layer_state(self.passes.net)}

    def _carried(
        self,
        states: Sequence[Mapping[str, tf.Tensor]],
        statistics: Sequence[Mapping[int, tf.Tensor]],
        before: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Return what the next step begins with, by the keys of ``carried_state``."""
        carried = dict(before)
        for replica, (state, moves) in enumerate(zip(states, statistics, strict=True)):
            carried.update((state_key(name, replica), tensor) for name, tensor in state.items())
            for position, tensor in moves.items() if replica else ():
                carried[statistic_key(self.passes.pieces.pieces[position].entry, replica)] = tensor
        return carried

    def _with_statistics(self, pieces: Sequence[tf.Tensor], statistics: Mapping[int, tf.Tensor]) -> Tensors:
        """Return the pieces with statistics that layers moved, on their devices."""
        found = list(pieces)
        for position, tensor in statistics.items():
            with self.on(self.passes.pieces.pieces[position].device):
                found[position] = tf.identity(tensor)
        return found

    def _nothing(self, replica: int) -> Tensors:
        """Return the sum of gradients before a replica's first pass, which ``debug_info`` alone asks for."""
        found = []
        for _, piece in self.passes.pieces.of_kind("weight") if self.passes.with_debug else ():
            with self.on(self._device(replica, piece.device)):
                found.append(tf.zeros(piece.shape))
        return found

    def _end(self, replica: int, gradients: Tensors) -> tf.Operation:
        """Return an operation that comes after a pass's gradients.

        Each is waited for by way of a copy of the tensor: an inlined call leaves nothing to wait for.
        """
        copies = []
        for gradient, (_, piece) in zip(gradients, self.passes.pieces.of_kind("weight"), strict=True):
            with self.on(self._device(replica, piece.device)):
                copies.append(tf.identity(gradient))
        return tf.group(*copies)

    def _added(self, replica: int, sums: Tensors, gradients: Tensors) -> Tensors:
        found = []
        weights = self.passes.pieces.of_kind("weight")
        for (_, piece), replaced, total, more in zip(weights, self.passes.is_replaced(), sums, gradients, strict=True):
            with self.on(self._device(replica, piece.device)):
                found.append(tf.identity(more) if replaced else total + more)
        return found

    def _debug_of_update(self, before: Tensors, steps: Mapping[int, tf.Tensor]) -> tf.Tensor:
        pieces = self.passes.pieces
        shares = [steps.get(k, tf.zeros(piece.shape)) for k, piece in enumerate(pieces.pieces)]
        axes = [of_entry[0].axis for of_entry in pieces.by_entry(pieces.pieces)]
        whole = [
            [joined_shares(found, axis) for found, axis in zip(pieces.by_entry(tensors), axes, strict=True)]
            for tensors in (before, shares)
        ]
        return debug_of_update(whole[0], dict(enumerate(whole[1])))


def _where_its_input_is(operation: tf.Operation) -> str:
    """Return a device for operations that TensorFlow adds to a function's results: none of their own, no copy."""
    if operation.device or not len(operation.inputs):
        return str(operation.device)
    return str(operation.inputs[0].device)


def device_step(
    solver: SolverSpec, plan: ComputePlan, devices: Sequence[str], passes: PassGraph, *, with_grad_norm: bool
) -> DeviceStepGraph:
    """Return the graph of one step on the plan's devices."""
    update = UpdateGraph(
        solver, RULES[solver.type], passes.pieces, with_grad_norm, lambda device: tf.device(devices[device])
    )
    return DeviceStepGraph(solver, plan, devices, passes, update)


def feed_key(name: str, k: int) -> str:
    """Return the name of the argument that holds the batch of a blob for pass ``k``."""
    return f"{k}:{name}"


def state_key(name: str, replica: int) -> str:
    """Return where the layer state ``name`` of a replica is carried from step to step."""
    return name if replica == 0 else f"{name}@{replica}"


def statistic_key(entry: ParamEntry, replica: int) -> str:
    """Return where a replica's own statistics are carried; those of the first are in the parameters."""
    return f"{entry.layer}/{entry.index}@{replica}"


def feed_devices(passes: PassGraph, replica: int) -> dict[str, int]:
    """Return fed blob -> number of the device that a pass of ``replica`` reads it on."""
    residence = passes.forward.places.residence
    return {name: replica if residence is None else residence.feeds[name] for name in passes.fed()}


def carried_devices(passes: PassGraph, n_replicas: int) -> dict[str, int]:
    """Return the device number of everything that ``carried_state`` has."""
    residence = passes.forward.places.residence
    if residence is not None:
        return {name: residence.layers[name.rpartition("/")[0]][0] for name in initial_layer_state(passes.net)}
    statistics = [piece.entry for _, piece in passes.pieces.of_kind("statistic")]
    found = {}
    for replica in range(n_replicas):
        found.update({state_key(name, replica): replica for name in initial_layer_state(passes.net)})
        found.update({statistic_key(entry, replica): replica for entry in statistics if replica})
    return found


def carried_state(net: NetSpec, n_replicas: int, params: Vector) -> dict[str, Any]:
    """Return what replicas carry from step to step beside the parameters, at the start of a run.

    As in Caffe each replica has layer state and BatchNorm's statistics of its own; what is kept at the end is the
    first one's, Caffe's root solver.
    """
    fresh, found = initial_layer_state(net), {}
    for replica in range(n_replicas):
        found.update({state_key(name, replica): value for name, value in fresh.items()})
        for entry in net.params.entries if replica else ():
            if entry.kind == "statistic":
                blob = params[entry.offset : entry.stop].reshape(entry.shape)
                found[statistic_key(entry, replica)] = blob.copy()
    return found
