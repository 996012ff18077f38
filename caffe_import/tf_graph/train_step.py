"""A net and a solver compiled into pure functions: n steps of Caffe's training in a single graph call, or one in two.

Between two calls the state is plain tensors in a ``TrainState``. The computation is in ``step_graph``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.devices.loss_scale import LOWEST, LossScale, StepScales
from caffe_import.devices.pieces import Pieces, pieces_of
from caffe_import.net.debug_info import StepDebug
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.solver.lr_policies import learning_rate
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES
from caffe_import.tf_graph.builder import build_forward, fed_blobs, random_key
from caffe_import.tf_graph.device_copies import tensor_in_memory_of, to_host
from caffe_import.tf_graph.other_shapes import OtherShapes, other_shapes_of
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.device_calls import DeviceCalls
from caffe_import.tf_graph.step.device_step import carried_state, device_step
from caffe_import.tf_graph.step.loss_scaling import as_numpy, scale_arguments, scales_of_run
from caffe_import.tf_graph.step.one_pass import PassGraph
from caffe_import.tf_graph.step.results import GradientResult
from caffe_import.tf_graph.step.solver_update import UpdateGraph
from caffe_import.tf_graph.step.step_graph import StepGraph
from caffe_import.tf_graph.step.traced_calls import TracedCalls
from caffe_import.tf_graph.step.whole_calls import WholeCalls
from caffe_import.tf_graph.threads import set_threads

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TrainState:
    """A worker's whole training state. Immutable, unless a run takes the state's memory; every run returns a new state.

    Attributes:
        params: float32 (n_params,), in the layout's order. A fresh numpy vector is as good as a tensor; TensorFlow
            reads it in place, so do not write it afterwards. After a run on several devices it is in pieces, each
            on its device, and stays there.
        history: The solver's history: float32 (n_slots, n_params) as it is given from outside, or the pieces of each
            slot as a run leaves them. Only snapshots want it in one piece, so it is joined when ``history_view`` asks.
        layer_state: "layer/name" -> tensor that a layer carries to its next pass; of further replicas what
            ``step.device_step.carried_state`` says.
        updates: Updates made so far by this worker (Adam's t is one more); a step that loss scaling skips is none.
        loss_scale: Of the next step; None but for float16.
    """

    params: tf.Tensor | Pieces | Vector
    history: Sequence[Pieces] | Vector
    layer_state: Mapping[str, tf.Tensor | Array]
    updates: int = 0
    loss_scale: LossScale | None = None

    def give_away(self) -> None:
        """Drop parameters and history, so that their memory is free if nobody else has it. The state ends here."""
        object.__setattr__(self, "params", None)
        object.__setattr__(self, "history", ())

    def params_view(self) -> Vector:
        """Return ``params`` as a read-only numpy vector: a view that keeps the memory alive, else a copy."""
        return _on_host(self.params)

    def history_view(self) -> Vector:
        """Return ``history`` as a read-only numpy array (n_slots, n_params); joined afresh after a run."""
        if isinstance(self.history, np.ndarray):
            return to_host(self.history)
        return to_host(np.stack([_on_host(slot) for slot in self.history]))


def _on_host(vector: tf.Tensor | Pieces | Vector) -> Vector:
    if isinstance(vector, Pieces):
        return to_host(vector.layout.joined([to_host(blob) for blob in vector]))
    return to_host(vector)


def _arrays(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: as_numpy(tensor) for name, tensor in tensors.items()}


@dataclass(frozen=True)
class StepOutputs:
    """Reports of the steps of a run.

    Attributes:
        losses: float32 (n_steps,): total weighted loss before each update, mean over the iter_size passes.
        outputs: Output blob, or blob that an HDF5Output layer takes -> float32 (n_steps, ...): its content in the
            last pass of each step.
        lr: float32 (n_steps,): the rates used, ``rate_scale`` included.
        grad_norm: float32 (n_steps,): L2 norm of the summed gradient before clipping; None unless asked for or
            the solver clips.
        n_rows: Blob that an HDF5Output layer takes -> int32 (n_steps,): how many rows of its output Filter has left;
            those after them are NaN.
        debug: The numbers of ``debug_info``; None unless the solver asks for them.
        scales: What loss scaling did; None but for float16.
    """

    losses: Vector
    outputs: Mapping[str, Array]
    lr: Vector
    grad_norm: Vector | None
    n_rows: Mapping[str, IntArray]
    debug: StepDebug | None = None
    scales: StepScales | None = None


@dataclass(frozen=True)
class StepGradient:
    """Results of the passes of a step, before any update.

    Attributes:
        gradient: Sum over the iter_size passes, before clipping, division and decay; float32 (n_params,), read-only,
            0 for statistics.
        loss: Total weighted loss, mean over the passes.
        outputs: As in ``StepOutputs``, its content in the last pass.
        n_rows: As in ``StepOutputs``, int32 scalars, of the last pass.
        debug: The numbers of ``debug_info``, without an update's; None unless the solver asks for them.
        scales: What loss scaling did, of one step; None but for float16.
    """

    gradient: Vector
    loss: float
    outputs: Mapping[str, Array]
    n_rows: Mapping[str, IntArray]
    debug: StepDebug | None = None
    scales: StepScales | None = None


class TrainFunction:
    """The compiled functions. Made by ``compile_training``; safe to share between threads, states are not its own.

    ``apply(gradient(state))`` is ``run`` of one step, but for the last bits of float32 where clipping adds up norms.

    Attributes:
        net: The TRAIN net.
        solver: The solver it was compiled for.
        rule: The solver's rule.
    """

    def __init__(
        self,
        net: NetSpec,
        solver: SolverSpec,
        *,
        with_grad_norm: bool,
        plan: ComputePlan,
        devices: Sequence[str],
        with_blob_factors: bool,
    ) -> None:
        """Fix the signatures; tracing happens at ``prepare`` or the first call."""
        self.net = net
        self.solver = solver
        self.rule = RULES[solver.type]
        # Caffe shows them at display iterations alone (Solver::Step).
        self._with_debug = solver.debug_info and solver.display > 0
        self._pieces = pieces_of(net, plan)
        self._with_blob_factors = with_blob_factors
        compile_net = partial(self._traced_calls, plan=plan, devices=devices, with_grad_norm=with_grad_norm)
        self._calls = compile_net(net)
        self._calls_of_sizes = OtherShapes(net, compile_net)
        self._plan, self._devices = plan, devices
        self._with_grad_norm = with_grad_norm
        self._first_scale = LossScale() if plan.precision == "float16" else None
        self._fed = fed_blobs(net)

    def _traced_calls(
        self, net: NetSpec, plan: ComputePlan, devices: Sequence[str], *, with_grad_norm: bool
    ) -> TracedCalls:
        passes = PassGraph(net, build_forward(net, plan, devices), self._pieces, self._with_debug)
        is_scaled = plan.precision == "float16"
        if plan.n_devices == 1:
            update = UpdateGraph(
                self.solver, self.rule, self._pieces, with_grad_norm, with_blob_factors=self._with_blob_factors
            )
            return WholeCalls(StepGraph(net, self.solver, passes, update), is_scaled, devices=devices)
        graph = device_step(self.solver, plan, devices, passes, with_grad_norm=with_grad_norm)
        return DeviceCalls(graph, is_scaled, plan.n_replicas)

    @property
    def count_traces(self) -> int:
        """How often TensorFlow traced anything; 1 for each of ``run``, ``gradient`` and ``apply`` that is called.

        Traces for samples of other sizes do not count.
        """
        return self._calls.count_traces

    def initial_state(self, params: Vector) -> TrainState:
        """Return the state of a run that begins at ``params``, float32 (n_params,): empty history, no updates."""
        history = np.zeros((self.rule.n_slots, self.net.params.n_params), np.float32)
        carried = carried_state(self.net, self._plan.n_replicas, params)
        return TrainState(params, history, carried, 0, self._first_scale)

    def prepare(self, *, with_step: bool = False) -> None:
        """Trace ``run`` and let TensorFlow optimise the graph; else the first run does both.

        By a run of no steps; on several devices, where each call is a step, by a step on zeros.

        Args:
            with_step: Make a step on zeros on one device, too. TensorFlow makes the loop's kernels at the first step.
        """
        nowhere = self.initial_state(np.zeros(self.net.params.n_params, np.float32))
        n_steps = max(self._calls.n_prepared_steps, int(with_step))
        feeds = self._empty_feeds(n_steps * self.solver.iter_size)
        self.run(nowhere, step=0, n_steps=n_steps, rate_scale=1.0, seed=0, worker=0, feeds=feeds)

    def prepare_parts(self) -> None:
        """Likewise for ``gradient`` and ``apply``, by one step on zeros."""
        nowhere = self.initial_state(np.zeros(self.net.params.n_params, np.float32))
        if nowhere.loss_scale is not None:
            nowhere = replace(nowhere, loss_scale=LossScale(LOWEST))  # one try
        feeds = self._empty_feeds(self.solver.iter_size)
        _, step_gradient = self.gradient(nowhere, step=0, seed=0, worker=0, feeds=feeds)
        self.apply(nowhere, step_gradient.gradient, step=0, rate_scale=1.0)

    def run(
        self,
        state: TrainState,
        *,
        step: int,
        n_steps: int,
        rate_scale: float,
        seed: int,
        worker: int,
        feeds: Mapping[str, Array],
        blob_factors: Vector | None = None,
        gives_away: bool = False,
    ) -> tuple[TrainState, StepOutputs]:
        """Make ``n_steps`` updates in one graph call.

        Args:
            state: Where to start. Not changed, unless ``gives_away``.
            step: Clock of the first step; ``lr_policy`` and the random seeds see step, step + 1, ...
            n_steps: How many updates.
            rate_scale: Factor on every rate of this run; a caller that warms up gives a new number per call.
            seed: The run's random seed.
            worker: This worker's number; workers with one seed draw different numbers.
            feeds: Blob name -> float32 [n_steps * iter_size, *blob shape], Caffe's axis order, one pass after
                another, for every name in ``fed_blobs(net)``; other names are ignored. Single samples may have another
                size, all passes of a call the same.
            blob_factors: One more factor on the rate of each blob of the layout, float32 (n_blobs,), if it was compiled
                with them; None: all 1.
            gives_away: Nobody uses ``state`` again. The run writes the new state into its memory: two vectors of
                parameters less for SGD. Views of the state keep their numbers.

        Raises:
            ValueError: A feed is missing or has the wrong shape.
        """
        rates = np.array([learning_rate(self.solver, step + i) for i in range(n_steps)], np.float32)
        rates *= np.float32(rate_scale)
        calls, checked_feeds = self._checked(feeds, n_steps * self.solver.iter_size)
        state_arguments = calls.state_arguments(state.params, self._slots(state.history))
        if gives_away:
            state.give_away()
        arguments = StepArguments(
            **state_arguments,
            layer_state=dict(state.layer_state),
            rates=rates,
            blob_factors=self._given_factors(blob_factors),
            updates=np.int64(state.updates),
            step=np.int64(step),
            key=random_key(seed, worker),
            feeds=checked_feeds,
            **scale_arguments(state.loss_scale),
        )
        result = calls.run(arguments)
        reports = result.reports
        loss_scale, scales = None, None
        if result.next_scale:
            loss_scale, scales = scales_of_run(result.next_scale, reports.scale, reports.is_made)
        n_made = int(scales.updated.sum()) if scales else n_steps
        new_state = TrainState(result.params, result.history, result.layer_state, state.updates + n_made, loss_scale)
        return new_state, StepOutputs(
            as_numpy(reports.loss),
            _arrays(reports.outputs),
            rates,
            as_numpy(reports.norm) if self._with_grad_norm else None,
            _arrays(reports.n_rows),
            StepDebug(*map(as_numpy, reports.debug)) if self._with_debug else None,
            scales,
        )

    def gradient(
        self, state: TrainState, *, step: int, seed: int, worker: int, feeds: Mapping[str, Array]
    ) -> tuple[TrainState, StepGradient]:
        """Make the passes of a step without the update; statistics and layer state move on.

        In float16 a gradient with infinities or NaNs is computed again at half the loss scale, until the
        gradient is finite or the scale is the lowest.

        Args:
            state: Where the gradient is taken. Not changed.
            step: Clock of the step; the random seeds see it.
            seed: As in ``run``.
            worker: As in ``run``.
            feeds: As in ``run``, iter_size passes.

        Raises:
            ValueError: A feed is missing or has the wrong shape.
        """
        calls, checked_feeds = self._checked(feeds, self.solver.iter_size)
        arguments = StepArguments(
            **{calls.params_field: calls.cut(state.params)},
            layer_state=dict(state.layer_state),
            step=np.int64(step),
            key=random_key(seed, worker),
            feeds=checked_feeds,
        )
        result, loss_scale, scales = _finite_gradient(calls, arguments, state.loss_scale)
        new_state = replace(state, params=result.params, layer_state=result.layer_state, loss_scale=loss_scale)
        reports = result.reports
        return new_state, StepGradient(
            _on_host(result.gradient),
            float(reports.loss),
            _arrays(reports.outputs),
            _arrays(reports.n_rows),
            StepDebug(as_numpy(reports.debug[0])[np.newaxis]) if self._with_debug else None,
            scales,
        )

    def of_one_pass(self) -> TrainFunction:
        """Return the function of the same net and solver with one pass a step; for a plan without replicas."""
        solver = replace(self.solver, iter_size=1)
        return TrainFunction(
            self.net, solver, with_grad_norm=False, plan=self._plan, devices=self._devices, with_blob_factors=False
        )

    @property
    def n_replicas(self) -> int:
        """Copies of the net that share the passes of a step."""
        return self._plan.n_replicas

    def apply(
        self,
        state: TrainState,
        gradient: Vector,
        *,
        step: int,
        rate_scale: float,
        blob_factors: Vector | None = None,
    ) -> tuple[TrainState, np.float32]:
        """Make the solver's update by a given gradient; returns the rate it used too.

        Args:
            state: What is updated. Not changed.
            gradient: As ``gradient`` returns it, changed or not: it is clipped, divided by iter_size and decayed here.
            step: Clock of the step; ``lr_policy`` sees it.
            rate_scale: Factor on the rate.
            blob_factors: As in ``run``.
        """
        rate = np.float32(learning_rate(self.solver, step)) * np.float32(rate_scale)
        arguments = StepArguments(
            **{self._calls.params_field: self._calls.cut(state.params)},
            history=self._slots(state.history),
            rates=np.array([rate]),
            blob_factors=self._given_factors(blob_factors),
            updates=np.int64(state.updates),
            **{self._calls.gradient_field: self._calls.cut(gradient)},
        )
        params, history = self._calls.apply(arguments)
        return replace(state, params=params, history=history, updates=state.updates + 1), rate

    def feeds_to_device(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Return the feeds of a ``run`` on the reading device, for ``run`` to take unchanged."""
        return {name: self._calls.feed_to_device(name, feeds[name]) for name in self._fed}

    def _empty_feeds(self, n_passes: int) -> dict[str, Array]:
        return {name: np.zeros((n_passes, *shape), np.float32) for name, shape in self._fed.items()}

    def _given_factors(self, blob_factors: Vector | None) -> Vector | None:
        if not self._with_blob_factors:
            return None
        return np.ones(len(self.net.params.entries), np.float32) if blob_factors is None else blob_factors

    def history_blobs(self, state: TrainState) -> list[Vector]:
        """Return the first slot of a state's history by blob of the layout, each flat and only to be read."""
        slot, entries = state.history[0], self.net.params.entries
        if isinstance(slot, Pieces) and len(slot.content) == len(entries):
            return [to_host(blob).reshape(-1) for blob in slot]
        vector = _on_host(slot)
        return [vector[entry.offset : entry.stop] for entry in entries]

    def history_of(self, blobs: Sequence[Vector]) -> list[Pieces]:
        """Return a history of one slot as a run leaves it: flat blobs of the layout, which the caller gives away."""
        shares = [piece.share_of(blobs[piece.position]) for piece in self._pieces.pieces]
        return [Pieces(self._pieces, [tensor_in_memory_of(share) for share in shares])]

    def _slots(self, history: Sequence[Pieces] | Vector) -> Sequence[Sequence[Any]]:
        return [self._pieces.cut(slot) if isinstance(slot, np.ndarray) else list(slot) for slot in history]

    def _checked(self, feeds: Mapping[str, Array], n_passes: int) -> tuple[TracedCalls, dict[str, Array]]:
        """Return the calls for feeds of these shapes, and the feeds that the net reads."""
        checked: dict[str, Array] = {}
        other_shapes: Mapping[str, Shape] = {}
        for name, shape in self._fed.items():
            expected = (n_passes, *shape)
            if name not in feeds:
                msg = f'no feed for blob "{name}"; expected float32 {expected}'
                raise ValueError(msg)
            checked[name] = feeds[name]
            if tuple(feeds[name].shape) != expected:
                other_shapes = self._other_shapes(feeds, n_passes)
                if not other_shapes:
                    msg = f'feed for blob "{name}" has shape {tuple(feeds[name].shape)}; expected {expected}'
                    raise ValueError(msg)
        return self._calls_of_sizes.of(other_shapes) if other_shapes else self._calls, checked

    def _other_shapes(self, feeds: Mapping[str, Array], n_passes: int) -> Mapping[str, Shape]:
        shapes = {name: tuple(feeds[name].shape) for name in self._fed if name in feeds}
        if any(shape[:1] != (n_passes,) for shape in shapes.values()):
            return {}
        return other_shapes_of({name: shape[1:] for name, shape in shapes.items()}, self._fed)


def _finite_gradient(
    calls: TracedCalls, arguments: StepArguments, begun: LossScale | None
) -> tuple[GradientResult, LossScale | None, StepScales | None]:
    """Return the graph's result, the next scale, and how the scale moved."""
    scale = begun
    while True:
        result = calls.gradient(replace(arguments, **scale_arguments(scale)))
        if begun is None or scale is None:
            return result, None, None
        is_finite = bool(result.reports.is_made)
        next_scale = scale.advanced(is_finite=is_finite)
        if is_finite or scale.scale <= LOWEST:
            moves = StepScales(*map(np.array, ([begun.scale], [is_finite], [next_scale.scale])))
            return result, next_scale, moves
        scale = next_scale


def compile_training(
    net: NetSpec,
    solver: SolverSpec,
    *,
    n_threads: int,
    with_grad_norm: bool = False,
    plan: ComputePlan = PLAIN,
    devices: Sequence[str] = (),
    with_blob_factors: bool = False,
) -> TrainFunction:
    """Compile a TRAIN net and a solver.

    Args:
        net: Built for phase TRAIN.
        solver: Type, rate policy, decay, clipping, iter_size.
        n_threads: Cores for this process (see ``set_threads``).
        with_grad_norm: Report the gradient's norm even if the solver does not clip; costs one pass over it.
        plan: How a step is computed.
        devices: TensorFlow's name of each of the plan's devices; empty: TensorFlow's own choice.
        with_blob_factors: Each ``run`` gives a factor on the rate of every blob; on one device.

    Raises:
        NetError: A layer type that cannot be computed, or a layer that cannot be split.
        ValueError: Another number of devices than the plan has, or replicas that do not share the passes evenly.
    """
    if solver.iter_size % plan.n_replicas:
        share = f"it must be a multiple of {plan.n_replicas}"
        msg = f"iter_size={solver.iter_size} counts the passes of all replicas: {share}"
        raise ValueError(msg)
    set_threads(n_threads, plan.n_devices)
    wants_norm = with_grad_norm or solver.clip_gradients >= 0
    return TrainFunction(
        net, solver, with_grad_norm=wants_norm, plan=plan, devices=devices, with_blob_factors=with_blob_factors
    )
