"""A net and a solver compiled into pure functions: n steps of Caffe's training in a single graph call, or one in two.

Between two calls the state is plain tensors in a ``TrainState``. The computation is in ``step_graph``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.devices.loss_scale import LOWEST, LossScale, StepScales
from caffe_import.devices.pieces import whole_blobs
from caffe_import.net.debug_info import StepDebug
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.solver.lr_policies import learning_rate
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES
from caffe_import.tf_graph.builder import build_forward, fed_blobs, initial_layer_state, random_key
from caffe_import.tf_graph.device_copies import to_device, to_host
from caffe_import.tf_graph.step.loss_scaling import SCALE_SPECS, scale_arguments, scales_of_run
from caffe_import.tf_graph.step.one_pass import PassGraph
from caffe_import.tf_graph.step.solver_update import UpdateGraph
from caffe_import.tf_graph.step.step_graph import StepArguments, StepGraph
from caffe_import.tf_graph.threads import set_threads

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int32]
Part = Literal["run", "gradient", "apply"]
HistoryBlobs = Sequence[Sequence[tf.Tensor]]
"""Slot, then blob in the layout's order and Caffe's shape: the history as a run leaves it."""


@dataclass(frozen=True)
class TrainState:
    """A worker's whole training state. Immutable; every run returns a new one.

    Attributes:
        params: float32 (n_params,), in the layout's order. A fresh numpy vector is as good as a tensor; TensorFlow
            may read it in place, so do not write it afterwards.
        history: The solver's history: float32 (n_slots, n_params) as it is given from outside, or the blobs of each
            slot as a run leaves them. Only snapshots want it in one piece, so it is joined when ``history_view`` asks.
        layer_state: "layer/name" -> tensor that a layer carries to its next pass.
        updates: Updates made so far by this worker (Adam's t is one more); a step that loss scaling skips is none.
        loss_scale: Of the next step; None but for float16.
    """

    params: tf.Tensor | Vector
    history: HistoryBlobs | Vector
    layer_state: Mapping[str, tf.Tensor | Array]
    updates: int = 0
    loss_scale: LossScale | None = None

    def params_view(self) -> Vector:
        """Return ``params`` as a read-only numpy vector: a view that keeps the memory alive, of a device a copy."""
        return to_host(self.params)

    def history_view(self) -> Vector:
        """Return ``history`` as a read-only numpy array (n_slots, n_params); joined afresh after a run."""
        if isinstance(self.history, np.ndarray):
            return to_host(self.history)
        return to_host(np.stack([np.concatenate([to_host(blob).reshape(-1) for blob in s]) for s in self.history]))


@dataclass(frozen=True)
class StepOutputs:
    """What the steps of one run reported.

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
    """What the passes of one step gave, before any update.

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
        count_traces: How often TensorFlow traced anything; stays at 1 for each of ``run``, ``gradient`` and ``apply``
            that is called.
    """

    def __init__(
        self, net: NetSpec, solver: SolverSpec, *, with_grad_norm: bool, plan: ComputePlan, devices: Sequence[str]
    ) -> None:
        """Fix the signatures; tracing happens at ``prepare`` or the first call."""
        self.net = net
        self.solver = solver
        self.rule = RULES[solver.type]
        self.count_traces = 0
        self._lock = Lock()
        # Caffe shows them at display iterations alone (Solver::Step).
        with_debug = solver.debug_info and solver.display > 0
        pieces = whole_blobs(net.params)
        passes = PassGraph(net, build_forward(net, plan, devices), pieces, with_debug)
        self._graph = StepGraph(net, solver, passes, UpdateGraph(solver, self.rule, pieces, with_grad_norm))
        self._with_grad_norm = with_grad_norm
        self._first_scale = LossScale() if plan.precision == "float16" else None
        self._devices = tuple(devices)
        self._fed = fed_blobs(net)
        self._functions: dict[Part, Callable[..., Any]] = {}

    def initial_state(self, params: Vector) -> TrainState:
        """Return the state of a run that begins at ``params``, float32 (n_params,): empty history, no updates."""
        history = np.zeros((self.rule.n_slots, self.net.params.n_params), np.float32)
        return TrainState(params, history, initial_layer_state(self.net), 0, self._first_scale)

    def prepare(self) -> None:
        """Trace ``run`` and let TensorFlow optimise it, by a run of no steps; else the first run does it."""
        nowhere = self.initial_state(np.zeros(self.net.params.n_params, np.float32))
        self.run(nowhere, step=0, n_steps=0, rate_scale=1.0, seed=0, worker=0, feeds=self._empty_feeds(0))

    def prepare_parts(self) -> None:
        """Likewise for ``gradient`` and ``apply``, by one step on zeros."""
        nowhere = self.initial_state(np.zeros(self.net.params.n_params, np.float32))
        if nowhere.loss_scale is not None:
            nowhere = replace(nowhere, loss_scale=LossScale(LOWEST))  # one try
        feeds = self._empty_feeds(self.solver.iter_size)
        _, found = self.gradient(nowhere, step=0, seed=0, worker=0, feeds=feeds)
        self.apply(nowhere, found.gradient, step=0, rate_scale=1.0)

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
    ) -> tuple[TrainState, StepOutputs]:
        """Make ``n_steps`` updates in one graph call.

        Args:
            state: Where to start. Not changed.
            step: Clock of the first step; ``lr_policy`` and the random seeds see step, step + 1, ...
            n_steps: How many updates.
            rate_scale: Factor on every rate of this run; a caller that warms up gives a new number per call.
            seed: The run's random seed.
            worker: This worker's number; workers with one seed draw different numbers.
            feeds: Blob name -> float32 [n_steps * iter_size, *blob shape], Caffe's axis order, one pass after
                another, for every name in ``fed_blobs(net)``; other names are ignored.

        Raises:
            ValueError: A feed is missing or has the wrong shape.
        """
        rates = np.array([learning_rate(self.solver, step + i) for i in range(n_steps)], np.float32)
        rates *= np.float32(rate_scale)
        arguments = StepArguments(
            params=state.params,
            history=self._history_blobs(state.history),
            layer_state=dict(state.layer_state),
            rates=rates,
            updates=np.int64(state.updates),
            step=np.int64(step),
            key=random_key(seed, worker),
            feeds=self._checked(feeds, n_steps * self.solver.iter_size),
            **scale_arguments(state.loss_scale),
        )
        params, history, layer_state, losses, outputs, norms, n_rows, debug, scaling = self._call("run", arguments)
        loss_scale, scales = scales_of_run(scaling) if scaling else (None, None)
        n_made = int(scales.made.sum()) if scales else n_steps
        after = TrainState(params, history, layer_state, state.updates + n_made, loss_scale)
        reported = {name: tensor.numpy() for name, tensor in outputs.items()}
        return after, StepOutputs(
            losses.numpy(),
            reported,
            rates,
            norms.numpy() if self._with_grad_norm else None,
            {name: tensor.numpy() for name, tensor in n_rows.items()},
            StepDebug(*(values.numpy() for values in debug)) if debug else None,
            scales,
        )

    def gradient(
        self, state: TrainState, *, step: int, seed: int, worker: int, feeds: Mapping[str, Array]
    ) -> tuple[TrainState, StepGradient]:
        """Make the passes of one step without its update; statistics and layer state move on.

        In float16 a gradient that is not finite is computed again at half the loss scale, until it is or the scale is
        the lowest.

        Args:
            state: Where the gradient is taken. Not changed.
            step: Clock of the step; the random seeds see it.
            seed: As in ``run``.
            worker: As in ``run``.
            feeds: As in ``run``, iter_size passes.

        Raises:
            ValueError: A feed is missing or has the wrong shape.
        """
        arguments = StepArguments(
            params=state.params,
            layer_state=dict(state.layer_state),
            step=np.int64(step),
            key=random_key(seed, worker),
            feeds=self._checked(feeds, self.solver.iter_size),
        )
        found, loss_scale, scales = self._finite_gradient(arguments, state.loss_scale)
        gradient, params, layer_state, loss, outputs, n_rows, debug = found
        after = replace(state, params=params, layer_state=layer_state, loss_scale=loss_scale)
        reported = {name: tensor.numpy() for name, tensor in outputs.items()}
        numbers = StepDebug(debug[0].numpy()[np.newaxis]) if debug else None
        rows = {name: tensor.numpy() for name, tensor in n_rows.items()}
        return after, StepGradient(to_host(gradient), float(loss), reported, rows, numbers, scales)

    def _finite_gradient(
        self, arguments: StepArguments, begun: LossScale | None
    ) -> tuple[Sequence[Any], LossScale | None, StepScales | None]:
        """Return what the graph gives, the next scale, and how the scale moved."""
        scale = begun
        while True:
            *found, is_made = self._call("gradient", replace(arguments, **scale_arguments(scale)))
            if begun is None or scale is None:
                return found, None, None
            is_finite = bool(is_made[0])
            after = scale.after(is_finite=is_finite)
            if is_finite or scale.scale <= LOWEST:
                return found, after, StepScales(*map(np.array, ([begun.scale], [is_finite], [after.scale])))
            scale = after

    def apply(
        self, state: TrainState, gradient: Vector, *, step: int, rate_scale: float
    ) -> tuple[TrainState, np.float32]:
        """Make the solver's update by a given gradient; returns the rate it used too.

        Args:
            state: What is updated. Not changed.
            gradient: As ``gradient`` returns it, changed or not: it is clipped, divided by iter_size and decayed here.
            step: Clock of the step; ``lr_policy`` sees it.
            rate_scale: Factor on the rate.
        """
        rate = np.float32(learning_rate(self.solver, step)) * np.float32(rate_scale)
        arguments = StepArguments(
            params=state.params,
            history=self._history_blobs(state.history),
            rates=np.array([rate]),
            updates=np.int64(state.updates),
            gradient=gradient,
        )
        params, history = self._call("apply", arguments)
        return replace(state, params=params, history=history, updates=state.updates + 1), rate

    def feeds_to_device(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Return the feeds of a ``run`` in the device's memory, which ``run`` then takes as they are."""
        return {name: self._placed(feeds[name]) for name in self._fed}

    def _empty_feeds(self, n_passes: int) -> dict[str, Array]:
        return {name: np.zeros((n_passes, *shape), np.float32) for name, shape in self._fed.items()}

    def _history_blobs(self, history: HistoryBlobs | Vector) -> HistoryBlobs:
        if not isinstance(history, np.ndarray):
            return history
        entries = self.net.params.entries
        return [[slot[entry.offset : entry.stop].reshape(entry.shape) for entry in entries] for slot in history]

    def _checked(self, feeds: Mapping[str, Array], n_passes: int) -> dict[str, Array]:
        checked = {}
        for name, shape in self._fed.items():
            expected = (n_passes, *shape)
            if name not in feeds:
                msg = f'no feed for blob "{name}"; expected float32 {expected}'
                raise ValueError(msg)
            if tuple(feeds[name].shape) != expected:
                msg = f'feed for blob "{name}" has shape {tuple(feeds[name].shape)}; expected {expected}'
                raise ValueError(msg)
            checked[name] = feeds[name]
        return checked

    def _call(self, part: Part, arguments: StepArguments) -> Any:
        """Call a traced function, which takes its tensors in one flat row.

        A call through ``tf.function`` with nested arguments costs half a millisecond of Python, a flat one of the
        traced function a fifth of that; a worker that exchanges at every step pays it at every step.
        """
        with self._lock:
            if part not in self._functions:
                self._functions[part] = self._trace(part)
        return self._functions[part](*map(self._placed, arguments.flat()))

    def _placed(self, leaf: Any) -> tf.Tensor:
        """Return an argument as a tensor where it is used; what the call before returned is there already.

        The scalars too: one that is elsewhere makes TensorFlow run the loops on both devices, in step.
        """
        if not self._devices:
            return tf.convert_to_tensor(leaf)
        return to_device(np.int64(leaf) if isinstance(leaf, np.int32) else leaf, self._devices[0])

    def _trace(self, part: Part) -> Callable[..., Any]:
        signature, compute = self._signature(part), getattr(self._graph, part)

        def traced(*flat: tf.Tensor) -> Any:
            self.count_traces += 1
            if not self._devices:
                return compute(signature.like(flat))
            with tf.device(self._devices[0]):
                given = signature.like(flat)
                return compute(replace(given, key=None if given.key is None else tf.cast(given.key, tf.int32)))

        function: Callable[..., Any] = tf.function(traced, autograph=False).get_concrete_function(*signature.flat())
        return function

    def _signature(self, part: Part) -> StepArguments:
        entries = self.net.params.entries
        vector = tf.TensorSpec((self.net.params.n_params,), tf.float32)
        updating = StepArguments(
            params=vector,
            history=[[tf.TensorSpec(entry.shape, tf.float32) for entry in entries] for _ in range(self.rule.n_slots)],
            rates=tf.TensorSpec((None,), tf.float32),
            updates=tf.TensorSpec((), tf.int64),
        )
        if part == "apply":
            return replace(updating, gradient=vector)
        scale = {} if self._first_scale is None else SCALE_SPECS
        return replace(
            updating if part == "run" else StepArguments(params=vector),
            layer_state={
                name: tf.TensorSpec(array.shape, tf.float32) for name, array in initial_layer_state(self.net).items()
            },
            step=tf.TensorSpec((), tf.int64),
            # TensorFlow leaves every int32 scalar on the host.
            key=tf.TensorSpec((), tf.int64 if self._devices else tf.int32),
            feeds={name: tf.TensorSpec((None, *shape), tf.float32) for name, shape in self._fed.items()},
            **scale,
        )


def compile_training(
    net: NetSpec,
    solver: SolverSpec,
    *,
    n_threads: int,
    with_grad_norm: bool = False,
    plan: ComputePlan = PLAIN,
    devices: Sequence[str] = (),
) -> TrainFunction:
    """Compile a TRAIN net and a solver.

    Args:
        net: Built for phase TRAIN.
        solver: Type, rate policy, decay, clipping, iter_size.
        n_threads: Cores for this process (see ``set_threads``).
        with_grad_norm: Report the gradient's norm even if the solver does not clip; costs one pass over it.
        plan: How a step is computed.
        devices: TensorFlow's name of each of the plan's devices; empty: TensorFlow's own choice.

    Raises:
        NetError: A layer type that cannot be computed.
    """
    set_threads(n_threads)
    wants_norm = with_grad_norm or solver.clip_gradients >= 0
    return TrainFunction(net, solver, with_grad_norm=wants_norm, plan=plan, devices=devices)
