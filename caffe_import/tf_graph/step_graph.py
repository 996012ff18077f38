"""The graph of one training step: forward and backward passes, clipping, decay and the solver's rule.

Pure functions of tensors, traced by ``train_step``. Source of the order within a step: BVLC Caffe @9b89154,
src/caffe/solver.cpp ``Step`` and src/caffe/solvers/sgd_solver.cpp ``ApplyUpdate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.files.hdf5_output import hdf5_output_inputs
from caffe_import.net.debug_info import n_pass_values
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import ParamEntry
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import Operations, SolverRule, UpdateRequest
from caffe_import.tf_graph.builder import Forward, ForwardResult
from caffe_import.tf_graph.debug_values import DebugTaps, mean_magnitude, norms

Tensors = list[tf.Tensor]
_OPERATIONS = Operations(
    sqrt=tf.sqrt,
    square=tf.square,
    sign=tf.sign,
    add=tf.add_n,
    float64=partial(tf.cast, dtype=tf.float64),
    float32=partial(tf.cast, dtype=tf.float32),
)


@dataclass(frozen=True)
class StepArguments:
    """The arguments of a call, None where it needs none: arrays or tensors, in the signature their specs."""

    params: Any = None
    history: Any = ()
    layer_state: Mapping[str, Any] = field(default_factory=dict)
    rates: Any = None
    updates: Any = None
    step: Any = None
    key: Any = None
    feeds: Mapping[str, Any] = field(default_factory=dict)
    gradient: Any = None

    def flat(self, *, convert: bool = True) -> list[Any]:
        """Return every given leaf in a fixed order, as tensors if ``convert``."""
        leaves = [
            *(leaf for name in self._single() if (leaf := getattr(self, name)) is not None),
            *(blob for slot in self.history for blob in slot),
            *(self.layer_state[name] for name in sorted(self.layer_state)),
            *(self.feeds[name] for name in sorted(self.feeds)),
        ]
        return [tf.convert_to_tensor(leaf) for leaf in leaves] if convert else leaves

    def like(self, leaves: Sequence[Any]) -> StepArguments:
        """Return the leaves of ``flat`` in this one's structure."""
        rest = iter(leaves)
        single = {name: next(rest) for name in self._single() if getattr(self, name) is not None}
        return StepArguments(
            **single,
            history=[[next(rest) for _ in slot] for slot in self.history],
            layer_state={name: next(rest) for name in sorted(self.layer_state)},
            feeds={name: next(rest) for name in sorted(self.feeds)},
        )

    @staticmethod
    def _single() -> tuple[str, ...]:
        return ("params", "rates", "updates", "step", "key", "gradient")


class Pass(NamedTuple):
    """The results of one pass, or of the sum of a step's passes.

    Attributes:
        gradients: One per blob of ``StepGraph.updated``.
        loss: Float32 scalar.
        statistics: Position in the layout -> new value, for blobs that the forward pass moved.
        layer_state: For the next pass.
        outputs: The net's outputs and what its HDF5Output layers take, by name.
        n_rows: Blob that an HDF5Output layer takes -> extent of its first axis, int32 scalar: how much of an output is
            not padding.
        debug: The values of ``debug_info.pass_lines``, float32 (n_values,), of a step (iter_size, n_values); empty
            unless asked for.
    """

    gradients: Tensors
    loss: tf.Tensor
    statistics: dict[int, tf.Tensor]
    layer_state: dict[str, tf.Tensor]
    outputs: dict[str, tf.Tensor]
    n_rows: dict[str, tf.Tensor]
    debug: tf.Tensor


@dataclass(frozen=True)
class StepGraph:
    """The graph: the parameters are split once per call, the loop carries blobs, one concat makes the vector again.

    The loop carries blobs and not the vector: each blob's rule then uses its own constants (lr_mult, decay_mult), and
    no step pays for a split and a concat of all parameters.
    """

    net: NetSpec
    solver: SolverSpec
    rule: SolverRule
    forward: Forward
    with_grad_norm: bool
    with_debug: bool = False
    plan: ComputePlan = PLAIN

    def run(self, given: StepArguments) -> Any:
        """Return the state and the reports after as many updates as there are rates.

        These are parameters, slots, layer state, losses, outputs, norms, rows, and the two arrays of ``StepDebug`` if
        asked.
        """
        n_steps = tf.size(given.rates)
        entries = self.forward.entries(given.params)
        reports = [
            tf.TensorArray(tf.float32, n_steps, element_shape=shape)
            for shape in ((), (), *(self.net.blob_shapes[name] for name in self._reported()), *self._debug_shapes())
        ]
        taken = hdf5_output_inputs(self.net)
        reports += [tf.TensorArray(tf.int32, n_steps, element_shape=()) for _ in taken]
        one_pass = self._own_function()

        def body(i: tf.Tensor, entries: Tensors, slots: list[Tensors], state: Any, reports: Any) -> Any:
            done = self._passes(one_pass, entries, state, i, given)
            entries = self._moved(entries, done.statistics)
            gradients, norm = self._clipped(done.gradients)
            update = given.updates + tf.cast(i, tf.int64) + 1
            before = entries
            entries, slots, steps = self._update(entries, gradients, slots, given.rates[i], update)
            values = [done.loss, norm, *(done.outputs[name] for name in self._reported())]
            if self.with_debug:
                values += [done.debug, self._debug_of_update(before, steps)]
            values += [done.n_rows[name] for name in taken]
            reports = [report.write(i, value) for report, value in zip(reports, values, strict=True)]
            return i + 1, entries, slots, done.layer_state, reports

        _, entries, slots, layer_state, reports = tf.while_loop(
            lambda i, *_: i < n_steps,
            body,
            (tf.constant(0), entries, given.history, given.layer_state, reports),
            parallel_iterations=1,
        )
        losses, norms, *others = [report.stack() for report in reports]
        n_outputs, first_rows = len(self._reported()), len(others) - len(taken)
        return (
            self._vector(entries),
            slots,
            layer_state,
            losses,
            dict(zip(self._reported(), others[:n_outputs], strict=True)),
            norms,
            dict(zip(taken, others[first_rows:], strict=True)),
            others[n_outputs:first_rows],
        )

    def _whole(self, name: str, value: tf.Tensor) -> tf.Tensor:
        """Return an output in its declared shape: for samples that Filter dropped, rows of NaN follow at the end."""
        if value.shape.is_fully_defined():
            return value
        shape = self.net.blob_shapes[name]
        missing = shape[0] - tf.shape(value)[0]
        filled = tf.pad(value, [[0, missing], *[[0, 0]] * (len(shape) - 1)], constant_values=float("nan"))
        return tf.ensure_shape(filled, shape)

    def _reported(self) -> tuple[str, ...]:
        """Return the net's outputs, then what its HDF5Output layers take."""
        return tuple(dict.fromkeys((*self.net.outputs, *hdf5_output_inputs(self.net))))

    def _debug_shapes(self) -> list[tuple[int, ...]]:
        if not self.with_debug:
            return []
        return [(self.solver.iter_size, n_pass_values(self.net)), (2, len(self.net.params.entries))]

    def _debug_of_update(self, before: Tensors, steps: Mapping[int, tf.Tensor]) -> tf.Tensor:
        data = [mean_magnitude(entry) for entry in before]
        moved = [mean_magnitude(steps[k]) if k in steps else tf.zeros(()) for k in range(len(before))]
        return tf.reshape(tf.stack([*data, *moved]), (2, -1)) if before else tf.zeros((2, 0))

    def gradient(self, given: StepArguments) -> Any:
        """Return (gradient, parameters, layer state, loss, outputs, rows, debug) of one step's passes; no update.

        The gradient is the sum over the passes before clipping and decay, float32 (n_params,), 0 for statistics.
        """
        entries = self.forward.entries(given.params)
        done = self._passes(self._own_function(), entries, given.layer_state, tf.constant(0), given)
        by_place = dict(zip((k for k, _ in self._updated()), done.gradients, strict=True))
        gradient = self._vector([by_place.get(k, tf.zeros_like(entry)) for k, entry in enumerate(entries)])
        params = self._vector(self._moved(entries, done.statistics)) if done.statistics else given.params
        debug = [done.debug] if self.with_debug else []
        return gradient, params, done.layer_state, done.loss, done.outputs, done.n_rows, debug

    def apply(self, given: StepArguments) -> Any:
        """Return (parameters, slots) after the update by a given gradient as ``gradient`` returns it."""
        entries = self.forward.entries(given.params)
        by_place = self.forward.entries(given.gradient)
        gradients, _ = self._clipped([by_place[k] for k, _ in self._updated()])
        update = given.updates + 1
        entries, slots, _ = self._update(entries, gradients, given.history, given.rates[0], update)
        return self._vector(entries), slots

    def _own_function(self) -> Any:
        """Return a pass as a function of its own, kept out of the graph that calls it.

        In a graph with a cycle TensorFlow 2.21 visits some gradients of MAX pooling before their forward kernel and
        then leaves them on a kernel ten times slower.
        """
        return tf.function(self._one_pass, autograph=False, experimental_attributes={"_noinline": True})

    def _vector(self, entries: Tensors) -> tf.Tensor:
        if not entries:
            return tf.zeros((0,), tf.float32)
        return tf.concat([tf.reshape(entry, (-1,)) for entry in entries], axis=0)

    def _passes(self, one_pass: Any, entries: Tensors, state: Any, i: tf.Tensor, given: StepArguments) -> Pass:
        """Return the sum over the iter_size passes of step ``i`` of this call."""
        step = tf.cast(given.step, tf.int32) + i

        def numbered(k: int | tf.Tensor, entries: Tensors, state: Any, before: Tensors) -> Pass:
            seed = tf.stack([given.key, step * iter_size + k])
            batch = {name: rows[i * iter_size + k] for name, rows in given.feeds.items()}
            done = Pass(*one_pass(entries, state, seed, batch, before))
            if not self.with_debug:
                return done
            return done._replace(debug=tf.scatter_nd([[k]], done.debug[tf.newaxis], (iter_size, done.debug.shape[0])))

        iter_size = self.solver.iter_size
        nothing = [tf.zeros(entry.shape) for _, entry in self._updated()] if self.with_debug else []
        first = numbered(0, entries, state, nothing)
        if iter_size == 1:
            return first

        def body(k: tf.Tensor, sums: Pass) -> Any:
            before = sums.gradients if self.with_debug else []
            one = numbered(k, self._moved(entries, sums.statistics), sums.layer_state, before)
            gradients = [
                more if replaced else total + more
                for replaced, total, more in zip(self._is_replaced(), sums.gradients, one.gradients, strict=True)
            ]
            debug = sums.debug + one.debug  # each pass fills a row of its own
            return k + 1, one._replace(gradients=gradients, loss=sums.loss + one.loss, debug=debug)

        _, sums = tf.while_loop(lambda k, _: k < iter_size, body, (tf.constant(1), first), parallel_iterations=1)
        mean: Pass = sums._replace(loss=sums.loss / iter_size)
        return mean

    def _is_replaced(self) -> list[bool]:
        """Return for each updated blob whether a pass's gradient replaces the one before instead of adding to it.

        The top of Caffe's Parameter layer shares the blob's gradient, and a layer that consumes a top writes it
        afresh (parameter_layer.hpp, ``Forward_cpu``): of iter_size passes the last one counts.
        """
        kinds = {layer.name: layer.type for layer in self.net.layers}
        return [kinds[entry.layer] == "Parameter" for _, entry in self._updated()]

    def _one_pass(self, entries: Tensors, state: Any, seed: tf.Tensor, feeds: Any, before: Tensors) -> Pass:
        taps = DebugTaps(self.net) if self.with_debug else None
        result = self.forward.on_entries(
            entries, state, seed, feeds, taps.top if taps else None, taps.param if taps else None
        )
        outputs = {name: self._whole(name, result.blobs[name].caffe) for name in self._reported()}
        wanted = [entries[position] for position, _ in self._updated()]
        gradients = self._gradients(result, [*wanted, *(taps.wanted() if taps else [])])
        debug = tf.zeros((0,))
        if taps:
            of_taps = gradients[len(wanted) :]
            debug = self._debug_of_pass(taps, result, entries, gradients[: len(wanted)], of_taps, before)
        statistics, layer_state = dict(result.param_updates), dict(result.state)
        n_rows = {name: tf.shape(result.blobs[name].caffe)[0] for name in hdf5_output_inputs(self.net)}
        return Pass(gradients[: len(wanted)], result.loss, statistics, layer_state, outputs, n_rows, debug)

    def _debug_of_pass(
        self,
        taps: DebugTaps,
        result: ForwardResult,
        entries: Tensors,
        gradients: Tensors,
        of_taps: Tensors,
        before: Tensors,
    ) -> tf.Tensor:
        earlier, sums = {}, []
        for (k, _), replaced, sum_before, gradient in zip(
            self._updated(), self._is_replaced(), before, gradients, strict=True
        ):
            if not replaced:
                earlier[k] = sum_before
            sums.append(gradient if replaced else sum_before + gradient)
        values = [*taps.forward(result, entries), *taps.backward(of_taps, earlier)]
        return tf.stack([*values, *norms(self._moved(entries, result.param_updates), sums)])

    def _moved(self, entries: Tensors, statistics: Mapping[int, tf.Tensor]) -> Tensors:
        return [statistics.get(position, entry) for position, entry in enumerate(entries)]

    def _gradients(self, result: ForwardResult, wanted: Tensors) -> Tensors:
        """Return the loss's gradients with respect to some tensors of the pass."""
        if not wanted:
            return []
        gradients = tf.gradients(result.loss, wanted, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # Embed's gradient comes as rows with indices.
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _updated(self) -> Sequence[tuple[int, ParamEntry]]:
        return [(k, entry) for k, entry in enumerate(self.net.params.entries) if entry.kind == "weight"]

    def _decayed_statistics(self) -> Sequence[tuple[int, ParamEntry]]:
        """Return the statistics whose history fills with weight decay; their values stay, since their rate is 0.

        Nothing reads it, but it is in Caffe's snapshots. A history that is scaled by the rate stays 0.
        """
        if self.solver.weight_decay == 0 or self.rule.rate_in_history:
            return []
        entries = enumerate(self.net.params.entries)
        return [(k, entry) for k, entry in entries if entry.kind == "statistic" and entry.decay_mult != 0]

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
    ) -> tuple[Tensors, list[Tensors], dict[int, tf.Tensor]]:
        """Return entries and slots after the update, and what was subtracted by position in the layout."""
        entries, slots, steps = list(entries), [list(slot) for slot in slots], {}
        statistics = self._decayed_statistics()
        gradients = [*gradients, *(tf.zeros_like(entries[k]) for k, _ in statistics)]
        updated = [*self._updated(), *statistics]
        # One product for each factor, not for each blob: a deep net has hundreds.
        rates = {mult: rate if mult == 1 else rate * mult for mult in {entry.lr_mult for _, entry in updated}}
        for gradient, (k, entry) in zip(gradients, updated, strict=True):
            done = self.rule.compute_update(
                UpdateRequest(
                    ops=_OPERATIONS,
                    weights=entries[k],
                    gradient=gradient,
                    decay=self.solver.weight_decay * entry.decay_mult,
                    slots=tuple(slot[k] for slot in slots),
                    rate=rates[entry.lr_mult],
                    update=update,
                    solver=self.solver,
                )
            )
            entries[k] -= done.step
            steps[k] = done.step
            for slot, value in zip(slots, done.slots, strict=True):
                slot[k] = value
        return entries, slots, steps
