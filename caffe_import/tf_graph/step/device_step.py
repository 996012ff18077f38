"""The graph of one training step on several devices: simultaneous passes, the passes' sum, an update.

Replicas deal the passes out over devices, as Caffe's ``caffe train -gpu 0,1`` does: device k modulo n_replicas computes
pass k with a copy of device 0's parameters, made once per step. Gradients are summed on each device, then on device 0.
A placement sends every pass through all devices, as a pipeline (Huang et al. 2019, "GPipe"). A pass begins after the
pass n_devices earlier has its gradients, so a device keeps the activations of at most n_devices passes (as in Narayanan
et al. 2019, "PipeDream", 1F1B).

This graph has no cycle, so passes are inlined and operations run as soon as their inputs exist. A loop over steps would
carry the parameters through a single device; the loop is in ``device_calls``.
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
from caffe_import.tf_graph.step.results import GradientResult, StepReports, StepResult
from caffe_import.tf_graph.step.solver_update import UpdateGraph
from caffe_import.tf_graph.step.step_graph import debug_of_update

Tensors = list[tf.Tensor]


@dataclass(frozen=True)
class DeviceStepGraph:
    """The graph of a step; arguments and results stay on their devices.

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

    def run(self, arguments: StepArguments) -> StepResult:
        """Return state and reports after one step.

        Where the loss is scaled, a step whose gradient is not finite leaves pieces, slots and the replicas' own
        statistics as they were.
        """
        step_pass = self._passes(arguments)
        pieces_before = self._with_statistics(arguments.pieces, step_pass.statistics)
        gradients, norm = self.update.clipped(step_pass.gradients)
        pieces, slots, steps = self.update.update(
            pieces_before, gradients, arguments.history, arguments.rates[0], arguments.updates + 1
        )
        carried = dict(step_pass.layer_state)
        of_scaling: tuple[tf.Tensor, ...] = ()
        if arguments.loss_scale is not None:
            is_made = self._all_finite(step_pass.gradients)
            pieces = self._chosen(is_made, pieces, arguments.pieces)
            slots = [self._chosen(is_made, *pair) for pair in zip(slots, arguments.history, strict=True)]
            steps = {k: tf.where(is_made, step, 0.0) for k, step in steps.items()}
            carried |= self._chosen_statistics(is_made, carried, arguments.layer_state)
            of_scaling = (arguments.loss_scale, is_made)
        debug = (step_pass.debug, self._debug_of_update(pieces_before, steps)) if self.passes.with_debug else ()
        return StepResult(pieces, slots, carried, StepReports.of(step_pass, debug, norm, *of_scaling))

    def gradient(self, arguments: StepArguments) -> GradientResult:
        """Return the result of the passes, gradient and parameters by piece."""
        step_pass = self._passes(arguments)
        by_place = dict(zip((k for k, _ in self.passes.pieces.of_kind("weight")), step_pass.gradients, strict=True))
        gradients = [by_place.get(k, tf.zeros_like(piece)) for k, piece in enumerate(arguments.pieces)]
        pieces = self._with_statistics(arguments.pieces, step_pass.statistics)
        debug = (step_pass.debug,) if self.passes.with_debug else ()
        is_finite = () if arguments.loss_scale is None else self._all_finite(step_pass.gradients)
        reports = StepReports.of(step_pass, debug, (), (), is_finite)
        return GradientResult(gradients, pieces, step_pass.layer_state, reports)

    def apply(self, arguments: StepArguments) -> tuple[Tensors, list[Tensors]]:
        """Return pieces and slots after the update by given gradients, one per piece."""
        gradients, _ = self.update.clipped([arguments.gradients[k] for k, _ in self.passes.pieces.of_kind("weight")])
        pieces, slots, _ = self.update.update(
            list(arguments.pieces), gradients, arguments.history, arguments.rates[0], arguments.updates + 1
        )
        return pieces, slots

    def on(self, device: int) -> AbstractContextManager[Any]:
        """Return the scope of a device's operations."""
        scope: AbstractContextManager[Any] = tf.device(self.devices[device])
        return scope

    def _all_finite(self, gradients: Tensors) -> tf.Tensor:
        """Return whether all gradients are finite, each examined on its device."""
        finite_gradients = []
        for gradient, (_, piece) in zip(gradients, self.passes.pieces.of_kind("weight"), strict=True):
            with self.on(piece.device):
                finite_gradients.append(all_finite([gradient]))
        return tf.reduce_all(finite_gradients)

    def _chosen(self, is_made: tf.Tensor, new_pieces: Sequence[tf.Tensor], old_pieces: Sequence[tf.Tensor]) -> Tensors:
        chosen_pieces = []
        for piece, new, old in zip(self.passes.pieces.pieces, new_pieces, old_pieces, strict=True):
            with self.on(piece.device):
                chosen_pieces.append(tf.where(is_made, new, old))
        return chosen_pieces

    def _chosen_statistics(
        self, is_made: tf.Tensor, new_statistics: Mapping[str, tf.Tensor], old_statistics: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Return the statistics of further replicas, by the keys of ``carried_state``."""
        chosen_statistics = {}
        for replica in range(1, self.plan.n_replicas):
            for _, piece in self.passes.pieces.of_kind("statistic"):
                key = statistic_key(piece.entry, replica)
                with self.on(replica):
                    chosen_statistics[key] = tf.where(is_made, new_statistics[key], old_statistics[key])
        return chosen_statistics

    def _passes(self, arguments: StepArguments) -> Pass:
        """Return the sum of the step's passes; layer state of all replicas, statistics of the first."""
        n_replicas, n_passes = self.plan.n_replicas, self.solver.iter_size
        passes = [tf.function(partial(self._one_pass, replica), autograph=False) for replica in range(n_replicas)]
        scale = () if arguments.loss_scale is None else (arguments.loss_scale,)
        pieces = [self._pieces_of(replica, arguments) for replica in range(n_replicas)]
        states = [self._state_of(replica, arguments.layer_state) for replica in range(n_replicas)]
        statistics: list[dict[int, tf.Tensor]] = [{} for _ in range(n_replicas)]
        sums: list[Tensors] = [self._nothing(replica) for replica in range(n_replicas)]
        finished_passes: list[Pass] = []
        ends: list[Any] = []
        for k in range(n_passes):
            replica = k % n_replicas
            gate = ends[k - self.plan.n_devices : k - self.plan.n_devices + 1] if k >= self.plan.n_devices else []
            seed, batch = self._given_to(k, arguments, gate)
            with self._on_replica(replica):
                earlier_sums = sums[replica] if self.passes.with_debug else []
                finished = Pass(*passes[replica](pieces[replica], states[replica], seed, batch, earlier_sums, *scale))
            pieces[replica], states[replica] = moved(pieces[replica], finished.statistics), finished.layer_state
            statistics[replica] = finished.statistics
            sums[replica] = (
                self._added(replica, sums[replica], finished.gradients) if k >= n_replicas else finished.gradients
            )
            ends.append(self._end(replica, sums[replica]))
            finished_passes.append(finished)
        gradients = sums[0]
        for more in sums[1:]:
            gradients = self._added(0, gradients, more)
        with self.on(0):
            loss = tf.add_n([finished.loss for finished in finished_passes]) / n_passes
            debug = tf.stack([finished.debug for finished in finished_passes])
        carried = self._carried(states, statistics, arguments.layer_state)
        return finished_passes[-1]._replace(
            gradients=gradients, loss=loss, statistics=statistics[0], layer_state=carried, debug=debug
        )

    def _one_pass(self, replica: int, *pass_arguments: Any) -> Pass:
        """Return a pass, of several replicas with names of its own.

        A loop's gradient is colocated with operations by name: of equal names TensorFlow would put the loops of two
        replicas on one device.
        """
        with tf.name_scope(f"replica{replica}") if self.plan.n_replicas > 1 else nullcontext():
            return self.passes.one_pass(*pass_arguments)

    def _given_to(
        self, k: int, arguments: StepArguments, gate: Sequence[Any]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Return seed and batch of pass ``k``, which are there once ``gate`` is."""
        batch = {}
        with tf.control_dependencies(gate):
            step = tf.cast(arguments.step, tf.int32)
            seed = tf.stack([arguments.key, step * self.solver.iter_size + k])
            for name, device in feed_devices(self.passes, k % self.plan.n_replicas).items():
                with self.on(device):
                    batch[name] = tf.identity(arguments.feeds[feed_key(name, k)])
        return seed, batch

    def _on_replica(self, replica: int) -> AbstractContextManager[Any]:
        """Return the scope of a replica's passes; a placed pass has its own."""
        scope: AbstractContextManager[Any] = tf.compat.v1.get_default_graph().device(_where_its_input_is)
        return self.on(replica) if self.plan.n_replicas > 1 else scope

    def _device(self, replica: int, device: int) -> int:
        return replica if self.plan.n_replicas > 1 else device

    def _pieces_of(self, replica: int, arguments: StepArguments) -> Tensors:
        """Return the parameters of a replica: copies of the parameters, and the replica's statistics."""
        if replica == 0:
            return list(arguments.pieces)
        with self.on(replica):
            return [
                arguments.layer_state[statistic_key(piece.entry, replica)]
                if piece.entry.kind == "statistic"
                else tf.identity(tensor)
                for piece, tensor in zip(self.passes.pieces.pieces, arguments.pieces, strict=True)
            ]

    def _state_of(self, replica: int, layer_state: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: layer_state[state_key(name, replica)] for name in initial_layer_state(self.passes.net)}

    def _carried(
        self,
        states: Sequence[Mapping[str, tf.Tensor]],
        statistics: Sequence[Mapping[int, tf.Tensor]],
        old_state: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Return the state before the next step, by the keys of ``carried_state``."""
        carried = dict(old_state)
        for replica, (state, moves) in enumerate(zip(states, statistics, strict=True)):
            carried.update((state_key(name, replica), tensor) for name, tensor in state.items())
            for position, tensor in moves.items() if replica else ():
                carried[statistic_key(self.passes.pieces.pieces[position].entry, replica)] = tensor
        return carried

    def _with_statistics(self, pieces: Sequence[tf.Tensor], statistics: Mapping[int, tf.Tensor]) -> Tensors:
        """Return the pieces with the layers' new statistics, on their devices."""
        updated_pieces = list(pieces)
        for position, tensor in statistics.items():
            with self.on(self.passes.pieces.pieces[position].device):
                updated_pieces[position] = tf.identity(tensor)
        return updated_pieces

    def _nothing(self, replica: int) -> Tensors:
        """Return the sum of gradients before a replica's first pass, which ``debug_info`` alone asks for."""
        zeros = []
        for _, piece in self.passes.pieces.of_kind("weight") if self.passes.with_debug else ():
            with self.on(self._device(replica, piece.device)):
                zeros.append(tf.zeros(piece.shape))
        return zeros

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
        new_sums = []
        weights = self.passes.pieces.of_kind("weight")
        for (_, piece), replaced, total, more in zip(weights, self.passes.is_replaced(), sums, gradients, strict=True):
            with self.on(self._device(replica, piece.device)):
                new_sums.append(tf.identity(more) if replaced else total + more)
        return new_sums

    def _debug_of_update(self, pieces_before: Tensors, steps: Mapping[int, tf.Tensor]) -> tf.Tensor:
        pieces = self.passes.pieces
        shares = [steps.get(k, tf.zeros(piece.shape)) for k, piece in enumerate(pieces.pieces)]
        axes = [of_entry[0].axis for of_entry in pieces.by_entry(pieces.pieces)]
        entries = [
            [
                joined_shares(entry_shares, axis)
                for entry_shares, axis in zip(pieces.by_entry(tensors), axes, strict=True)
            ]
            for tensors in (pieces_before, shares)
        ]
        return debug_of_update(entries[0], dict(enumerate(entries[1])))


def _where_its_input_is(operation: tf.Operation) -> str:
    """Return the input's device for operations that TensorFlow adds to a function's results, to save a copy."""
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
    """Return the key of the layer state ``name`` of a replica."""
    return name if replica == 0 else f"{name}@{replica}"


def statistic_key(entry: ParamEntry, replica: int) -> str:
    """Return the key of a further replica's statistics; the first replica's statistics are in the parameters."""
    return f"{entry.layer}/{entry.index}@{replica}"


def feed_devices(passes: PassGraph, replica: int) -> dict[str, int]:
    """Return fed blob -> device number of the reading pass of ``replica``."""
    residence = passes.forward.places.residence
    return {name: replica if residence is None else residence.feeds[name] for name in passes.fed()}


def carried_devices(passes: PassGraph, n_replicas: int) -> dict[str, int]:
    """Return the device number of every entry of ``carried_state``."""
    residence = passes.forward.places.residence
    if residence is not None:
        return {name: residence.layers[name.rpartition("/")[0]][0] for name in initial_layer_state(passes.net)}
    statistics = [piece.entry for _, piece in passes.pieces.of_kind("statistic")]
    device_of_key = {}
    for replica in range(n_replicas):
        device_of_key.update({state_key(name, replica): replica for name in initial_layer_state(passes.net)})
        device_of_key.update({statistic_key(entry, replica): replica for entry in statistics if replica})
    return device_of_key


def carried_state(net: NetSpec, n_replicas: int, params: Vector) -> dict[str, Any]:
    """Return the replicas' state beside the parameters, at the start of a run.

    As in Caffe each replica has separate layer state and BatchNorm statistics. At the end the first replica's state
    counts, as Caffe's root solver's.
    """
    fresh, state = initial_layer_state(net), {}
    for replica in range(n_replicas):
        state.update({state_key(name, replica): value for name, value in fresh.items()})
        for entry in net.params.entries if replica else ():
            if entry.kind == "statistic":
                blob = params[entry.offset : entry.stop].reshape(entry.shape)
                state[statistic_key(entry, replica)] = blob.copy()
    return state
