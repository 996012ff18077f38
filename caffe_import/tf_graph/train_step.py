"""A net and a solver compiled into one pure function: n steps of Caffe's training in a single graph call.

Between two calls everything is plain tensors in a ``TrainState``. Source of the order within a step: BVLC Caffe
@9b89154, src/caffe/solver.cpp ``Step`` and src/caffe/solvers/sgd_solver.cpp ``ApplyUpdate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.lr_policies import learning_rate
from caffe_import.net_spec import NetSpec
from caffe_import.param_layout import ParamEntry, Vector
from caffe_import.solver_spec import SolverSpec
from caffe_import.tf_graph.builder import (
    Forward,
    ForwardResult,
    build_forward,
    fed_blobs,
    initial_layer_state,
    random_key,
)
from caffe_import.tf_graph.solvers import SolverRule, UpdateRequest, find_rule
from caffe_import.tf_graph.threads import set_threads

Array = npt.NDArray[Any]
Tensors = list[tf.Tensor]
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
        updates: Updates made so far by this worker (Adam's t is one more).
    """

    params: tf.Tensor | Vector
    history: HistoryBlobs | Vector
    layer_state: Mapping[str, tf.Tensor | Array]
    updates: int = 0

    def params_view(self) -> Vector:
        """Return ``params`` as a read-only numpy vector without a copy; it keeps the memory alive."""
        return as_array(self.params)

    def history_view(self) -> Vector:
        """Return ``history`` as a read-only numpy array (n_slots, n_params); joined afresh after a run."""
        if isinstance(self.history, np.ndarray):
            return as_array(self.history)
        return as_array(np.stack([np.concatenate([as_array(blob).reshape(-1) for blob in s]) for s in self.history]))


@dataclass(frozen=True)
class StepOutputs:
    """What the steps of one run reported.

    Attributes:
        losses: float32 (n_steps,): total weighted loss before each update, mean over the iter_size passes.
        outputs: Output blob -> float32 (n_steps, ...): its content in the last pass of each step.
        lr: float32 (n_steps,): the rates used, ``rate_scale`` included.
        grad_norm: float32 (n_steps,): L2 norm of the summed gradient before clipping; None unless asked for or
            the solver clips.
    """

    losses: Vector
    outputs: Mapping[str, Array]
    lr: Vector
    grad_norm: Vector | None


def as_array(tensor: tf.Tensor | Array) -> Array:
    """Return a tensor's memory as a read-only numpy array; a numpy array comes back as a read-only view."""
    array = np.asarray(tensor if isinstance(tensor, np.ndarray) else memoryview(tensor)).view()
    array.flags.writeable = False
    return array


class TrainFunction:
    """The compiled function. Made by ``compile_training``; safe to share between threads, states are not its own.

    Attributes:
        net: The TRAIN net.
        solver: The solver it was compiled for.
        rule: The solver's rule.
        count_traces: How often TensorFlow traced it; stays 1.
    """

    def __init__(self, net: NetSpec, solver: SolverSpec, *, with_grad_norm: bool) -> None:
        """Fix the signature; tracing happens at ``prepare`` or the first run."""
        self.net = net
        self.solver = solver
        self.rule = find_rule(solver)
        self.count_traces = 0
        self._lock = Lock()
        self._graph = _StepGraph(net, solver, self.rule, build_forward(net), with_grad_norm)
        self._fed = fed_blobs(net)
        self._function: Callable[..., Any] | None = None

    def initial_state(self, params: Vector) -> TrainState:
        """Return the state of a run that begins at ``params``, float32 (n_params,): empty history, no updates."""
        history = np.zeros((self.rule.n_slots, self.net.params.n_params), np.float32)
        return TrainState(params, history, initial_layer_state(self.net), 0)

    def prepare(self) -> None:
        """Trace the function and let TensorFlow optimise it, by a run of no steps; else the first run does it."""
        n_params = self.net.params.n_params
        feeds = {name: np.zeros((0, *shape), np.float32) for name, shape in self._fed.items()}
        nowhere = self.initial_state(np.zeros(n_params, np.float32))
        self.run(nowhere, step=0, n_steps=0, rate_scale=1.0, seed=0, worker=0, feeds=feeds)

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
        arguments = _Arguments(
            params=state.params,
            history=self._history_blobs(state.history),
            layer_state=dict(state.layer_state),
            rates=rates,
            updates=np.int64(state.updates),
            step=np.int64(step),
            key=random_key(seed, worker),
            feeds=self._checked(feeds, n_steps * self.solver.iter_size),
        )
        params, history, layer_state, losses, outputs, norms = self._compiled()(*arguments.flat())
        after = TrainState(params, history, layer_state, state.updates + n_steps)
        reported = {name: tensor.numpy() for name, tensor in outputs.items()}
        return after, StepOutputs(
            losses.numpy(), reported, rates, norms.numpy() if self._graph.with_grad_norm else None
        )

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

    def _compiled(self) -> Callable[..., Any]:
        """Return the traced function, which takes its tensors in one flat row.

        A call through ``tf.function`` with nested arguments costs half a millisecond of Python, a flat one of the
        traced function a fifth of that; a worker that exchanges at every step pays it at every step.
        """
        with self._lock:
            if self._function is None:
                signature = self._signature()
                specs = signature.flat(convert=False)
                traced = tf.function(lambda *flat: self._traced(signature.like(flat)), autograph=False)
                self._function = traced.get_concrete_function(*specs)
        return self._function

    def _signature(self) -> _Arguments:
        n_params, n_slots = self.net.params.n_params, self.rule.n_slots
        return _Arguments(
            params=tf.TensorSpec((n_params,), tf.float32),
            history=[
                [tf.TensorSpec(entry.shape, tf.float32) for entry in self.net.params.entries] for _ in range(n_slots)
            ],
            layer_state={
                name: tf.TensorSpec(array.shape, tf.float32) for name, array in initial_layer_state(self.net).items()
            },
            rates=tf.TensorSpec((None,), tf.float32),
            updates=tf.TensorSpec((), tf.int64),
            step=tf.TensorSpec((), tf.int64),
            key=tf.TensorSpec((), tf.int32),
            feeds={name: tf.TensorSpec((None, *shape), tf.float32) for name, shape in self._fed.items()},
        )

    def _traced(self, arguments: _Arguments) -> Any:
        self.count_traces += 1
        return self._graph.run(arguments)


@dataclass(frozen=True)
class _Arguments:
    """What one call takes: arrays or tensors outside, tensors inside, specs in the signature."""

    params: Any
    history: Any
    layer_state: Mapping[str, Any]
    rates: Any
    updates: Any
    step: Any
    key: Any
    feeds: Mapping[str, Any]

    def flat(self, *, convert: bool = True) -> list[Any]:
        """Return every leaf in a fixed order, as tensors if ``convert``."""
        leaves = [
            self.params, self.rates, self.updates, self.step, self.key,
            *(blob for slot in self.history for blob in slot),
            *(self.layer_state[name] for name in sorted(self.layer_state)),
            *(self.feeds[name] for name in sorted(self.feeds)),
        ]  # fmt: skip
        return [tf.convert_to_tensor(leaf) for leaf in leaves] if convert else leaves

    def like(self, leaves: Sequence[Any]) -> _Arguments:
        """Return the leaves of ``flat`` in this one's structure."""
        params, rates, updates, step, key, *others = leaves
        rest = iter(others)
        return _Arguments(
            history=[[next(rest) for _ in slot] for slot in self.history],
            layer_state={name: next(rest) for name in sorted(self.layer_state)},
            feeds={name: next(rest) for name in sorted(self.feeds)},
            params=params,
            rates=rates,
            updates=updates,
            step=step,
            key=key,
        )


def compile_training(
    net: NetSpec, solver: SolverSpec, *, n_threads: int, with_grad_norm: bool = False
) -> TrainFunction:
    """Compile a TRAIN net and a solver.

    Args:
        net: Built for phase TRAIN.
        solver: Type, rate policy, decay, clipping, iter_size.
        n_threads: Cores for this process (see ``set_threads``).
        with_grad_norm: Report the gradient's norm even if the solver does not clip; costs one pass over it.

    Raises:
        NetError: A layer type that cannot be computed.
        CaffeImportError: A solver type or momentum that is not allowed.
    """
    set_threads(n_threads)
    return TrainFunction(net, solver, with_grad_norm=with_grad_norm or solver.clip_gradients >= 0)


class _Pass(NamedTuple):
    """What one pass, or the sum of a step's passes, left behind.

    Attributes:
        gradients: One per blob of ``_StepGraph.updated``.
        loss: Float32 scalar.
        statistics: Position in the layout -> new value, for blobs that the forward pass moved.
        layer_state: For the next pass.
        outputs: The net's outputs, by name.
    """

    gradients: Tensors
    loss: tf.Tensor
    statistics: dict[int, tf.Tensor]
    layer_state: dict[str, tf.Tensor]
    outputs: dict[str, tf.Tensor]


@dataclass(frozen=True)
class _StepGraph:
    """The graph: the parameters are split once per call, the loop carries blobs, one concat makes the vector again.

    The loop carries blobs and not the vector: each blob's rule then uses its own constants (lr_mult, decay_mult), and
    no step pays for a split and a concat of all parameters.
    """

    net: NetSpec
    solver: SolverSpec
    rule: SolverRule
    forward: Forward
    with_grad_norm: bool

    def run(self, given: _Arguments) -> Any:
        n_steps = tf.size(given.rates)
        entries = self.forward.entries(given.params)
        reports = [
            tf.TensorArray(tf.float32, n_steps, element_shape=shape)
            for shape in ((), (), *(self.net.blob_shapes[name] for name in self.net.outputs))
        ]

        # A function of its own, kept out of the loop's graph: in a graph with a cycle TensorFlow 2.21 visits some
        # gradients of MAX pooling before their forward kernel and then leaves them on a kernel ten times slower.
        one_pass = tf.function(self._one_pass, autograph=False, experimental_attributes={"_noinline": True})

        def body(i: tf.Tensor, entries: Tensors, slots: list[Tensors], state: Any, reports: Any) -> Any:
            done = self._passes(one_pass, entries, state, i, given)
            entries = self._moved(entries, done.statistics)
            gradients, norm = self._clipped(done.gradients)
            update = given.updates + tf.cast(i, tf.int64) + 1
            entries, slots = self._update(entries, gradients, slots, given.rates[i], update)
            values = [done.loss, norm, *(done.outputs[name] for name in self.net.outputs)]
            reports = [report.write(i, value) for report, value in zip(reports, values, strict=True)]
            return i + 1, entries, slots, done.layer_state, reports

        _, entries, slots, layer_state, reports = tf.while_loop(
            lambda i, *_: i < n_steps,
            body,
            (tf.constant(0), entries, given.history, given.layer_state, reports),
            parallel_iterations=1,
        )
        losses, norms, *outputs = [report.stack() for report in reports]
        return (
            self._vector(entries),
            slots,
            layer_state,
            losses,
            dict(zip(self.net.outputs, outputs, strict=True)),
            norms,
        )

    def _vector(self, entries: Tensors) -> tf.Tensor:
        if not entries:
            return tf.zeros((0,), tf.float32)
        return tf.concat([tf.reshape(entry, (-1,)) for entry in entries], axis=0)

    def _passes(self, one_pass: Any, entries: Tensors, state: Any, i: tf.Tensor, given: _Arguments) -> _Pass:
        """Return the sum over the iter_size passes of step ``i`` of this call."""
        step = tf.cast(given.step, tf.int32) + i

        def numbered(k: int | tf.Tensor, entries: Tensors, state: Any) -> _Pass:
            seed = tf.stack([given.key, step * iter_size + k])
            batch = {name: rows[i * iter_size + k] for name, rows in given.feeds.items()}
            return _Pass(*one_pass(entries, state, seed, batch))

        iter_size = self.solver.iter_size
        first = numbered(0, entries, state)
        if iter_size == 1:
            return first

        def body(k: tf.Tensor, sums: _Pass) -> Any:
            one = numbered(k, self._moved(entries, sums.statistics), sums.layer_state)
            gradients = [
                more if replaced else total + more
                for replaced, total, more in zip(self._is_replaced(), sums.gradients, one.gradients, strict=True)
            ]
            return k + 1, one._replace(gradients=gradients, loss=sums.loss + one.loss)

        _, sums = tf.while_loop(lambda k, _: k < iter_size, body, (tf.constant(1), first), parallel_iterations=1)
        mean: _Pass = sums._replace(loss=sums.loss / iter_size)
        return mean

    def _is_replaced(self) -> list[bool]:
        """Return for each updated blob whether a pass's gradient replaces the one before instead of adding to it.

        The top of Caffe's Parameter layer shares the blob's gradient, and whoever consumes a top writes its gradient
        afresh (parameter_layer.hpp, ``Forward_cpu``): of iter_size passes the last one counts.
        """
        kinds = {layer.name: layer.type for layer in self.net.layers}
        return [kinds[entry.layer] == "Parameter" for _, entry in self._updated()]

    def _one_pass(self, entries: Tensors, state: Any, seed: tf.Tensor, feeds: Any) -> _Pass:
        result = self.forward.on_entries(entries, state, seed, feeds)
        outputs = {name: result.blobs[name].caffe for name in self.net.outputs}
        gradients = self._gradients(result, entries)
        return _Pass(gradients, result.loss, dict(result.param_updates), dict(result.state), outputs)

    def _moved(self, entries: Tensors, statistics: Mapping[int, tf.Tensor]) -> Tensors:
        return [statistics.get(position, entry) for position, entry in enumerate(entries)]

    def _gradients(self, result: ForwardResult, entries: Tensors) -> Tensors:
        """Return one gradient per blob that the solver updates, in the order of ``_updated``."""
        wanted = [entries[position] for position, _ in self._updated()]
        if not wanted:
            return []
        gradients = tf.gradients(result.loss, wanted, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # Embed's gradient comes as rows with indices.
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _updated(self) -> Sequence[tuple[int, ParamEntry]]:
        # Statistics take no decay and no update. Caffe runs them through its rule with rate 0: the same values, but
        # with weight decay AdaGrad and Adam also fill history that nothing reads.
        return [(k, entry) for k, entry in enumerate(self.net.params.entries) if entry.kind == "weight"]

    def _clipped(self, gradients: Tensors) -> tuple[Tensors, tf.Tensor]:
        """Scale the sum over the passes: clip by its norm (before any decay), then divide by iter_size."""
        scale = tf.constant(1.0 / self.solver.iter_size)
        norm = tf.zeros(())
        if self.with_grad_norm and gradients:
            norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients]))
        if self.solver.clip_gradients >= 0:
            limit = tf.constant(self.solver.clip_gradients, tf.float32)
            scale *= tf.where(norm > limit, limit / norm, 1.0)
        elif self.solver.iter_size == 1:
            return gradients, norm
        return [scale * gradient for gradient in gradients], norm

    def _update(
        self, entries: Tensors, gradients: Tensors, slots: list[Tensors], rate: tf.Tensor, update: tf.Tensor
    ) -> tuple[Tensors, list[Tensors]]:
        entries, slots = list(entries), [list(slot) for slot in slots]
        for gradient, (k, entry) in zip(gradients, self._updated(), strict=True):
            done = self.rule.compute_update(
                UpdateRequest(
                    gradient=gradient,
                    decay_term=entries[k] if self.solver.regularization_type == "L2" else tf.sign(entries[k]),
                    decay=self.solver.weight_decay * entry.decay_mult,
                    slots=tuple(slot[k] for slot in slots),
                    rate=rate * entry.lr_mult,
                    update=update,
                    solver=self.solver,
                )
            )
            entries[k] -= done.step
            for slot, value in zip(slots, done.slots, strict=True):
                slot[k] = value
        return entries, slots
