"""The graph of training steps on one device: passes, then the update, in loops that carry the parameters' blobs.

Pure functions of tensors, traced by ``train_step``. Source of the order within a step: BVLC Caffe @9b89154,
src/caffe/solver.cpp ``Step``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from caffe_import.devices.pieces import Piece
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.tf_graph.debug_values import mean_magnitude
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.loss_scaling import Scaling, all_finite, chosen
from caffe_import.tf_graph.step.one_pass import Pass, PassGraph, moved
from caffe_import.tf_graph.step.results import GradientResult, StepReports, StepResult, report_specs
from caffe_import.tf_graph.step.solver_update import UpdateGraph

Tensors = list[tf.Tensor]


@dataclass(frozen=True)
class _Updated:
    """Blobs after one step; ``steps`` was subtracted from ``before``. Absent without loss scaling: the last two."""

    entries: Tensors
    slots: list[Tensors]
    steps: Mapping[int, tf.Tensor]
    before: Tensors
    norm: tf.Tensor
    scaling: Scaling | tuple[()] = ()
    is_made: tuple[()] | tf.Tensor = ()


@dataclass(frozen=True)
class StepGraph:
    """The graph: the parameters are split once per call, the loop carries blobs, one concat makes the vector again.

    The loop carries blobs and not the vector: each blob's rule then uses the blob's constants
    (lr_mult, decay_mult), and no step splits and joins all parameters.
    """

    net: NetSpec
    solver: SolverSpec
    passes: PassGraph
    update: UpdateGraph

    def run(self, arguments: StepArguments) -> StepResult:
        """Return state and reports after an update per rate.

        A step whose gradient is not finite leaves parameters, statistics and slots as they were, if the loss is scaled;
        what layers carry to the next pass moves on.
        """
        n_steps = tf.size(arguments.rates)
        entries = self.passes.forward.entries(arguments.params)
        scaling = self._scaling(arguments)
        reports = tf.nest.map_structure(
            lambda spec: tf.TensorArray(spec.dtype, n_steps, element_shape=spec.shape),
            report_specs(self.passes, self.solver.iter_size, is_scaled=bool(scaling)),
        )
        one_pass = self._own_function()

        def body(i: tf.Tensor, entries: Tensors, slots: list[Tensors], state: Any, scaling: Any, reports: Any) -> Any:
            step_pass = self._passes(one_pass, entries, state, i, arguments, *scaling[:1])
            updated = self._updated(entries, slots, step_pass, i, arguments, scaling)
            debug: Any = ()
            if self.passes.with_debug:
                debug = (step_pass.debug, debug_of_update(updated.before, updated.steps))
            of_scaling = (scaling.scale, updated.is_made) if scaling else ()
            values = StepReports.of(step_pass, debug, updated.norm, *of_scaling)
            reports = tf.nest.map_structure(lambda report, value: report.write(i, value), reports, values)
            return i + 1, updated.entries, updated.slots, step_pass.layer_state, updated.scaling, reports

        _, entries, slots, layer_state, scaling, reports = tf.while_loop(
            lambda i, *_: i < n_steps,
            body,
            (tf.constant(0), entries, arguments.history, arguments.layer_state, scaling, reports),
            parallel_iterations=1,
        )
        stacked = tf.nest.map_structure(lambda report: report.stack(), reports)
        return StepResult(self._vector(entries), slots, layer_state, stacked, tuple(scaling[:2]))

    def _scaling(self, arguments: StepArguments) -> Scaling | tuple[()]:
        if arguments.loss_scale is None:
            return ()
        return Scaling(arguments.loss_scale, arguments.good_steps, tf.constant(0, tf.int64))

    def _updated(
        self,
        entries: Tensors,
        slots: list[Tensors],
        step_pass: Pass,
        i: tf.Tensor,
        arguments: StepArguments,
        scaling: Any,
    ) -> _Updated:
        """Make step ``i`` from what its passes gave."""
        old_entries = moved(entries, step_pass.statistics)
        gradients, norm = self.update.clipped(step_pass.gradients)
        update = arguments.updates + tf.cast(i, tf.int64) + 1
        if scaling:
            update -= scaling.n_skipped
        update_result = self.update.update(
            old_entries, gradients, slots, arguments.rates[i], update, arguments.blob_factors
        )
        if not scaling:
            return _Updated(*update_result, old_entries, norm)
        is_made = all_finite(step_pass.gradients)
        nothing = {position: tf.zeros_like(step) for position, step in update_result[2].items()}
        entries, slots, steps = chosen(is_made, update_result, (entries, slots, nothing))
        return _Updated(entries, slots, steps, old_entries, norm, scaling.advanced(is_made), is_made)

    def gradient(self, arguments: StepArguments) -> GradientResult:
        """Return the result of one step's passes; no update."""
        entries = self.passes.forward.entries(arguments.params)
        scaling = self._scaling(arguments)
        one_pass = self._own_function()
        step_pass = self._passes(one_pass, entries, arguments.layer_state, tf.constant(0), arguments, *scaling[:1])
        by_place = dict(zip((k for k, _ in self._weights()), step_pass.gradients, strict=True))
        gradient = self._vector([by_place.get(k, tf.zeros_like(entry)) for k, entry in enumerate(entries)])
        params = self._vector(moved(entries, step_pass.statistics)) if step_pass.statistics else arguments.params
        debug = (step_pass.debug,) if self.passes.with_debug else ()
        is_finite = all_finite(step_pass.gradients) if scaling else ()
        reports = StepReports.of(step_pass, debug, (), (), is_finite)
        return GradientResult(gradient, params, step_pass.layer_state, reports)

    def apply(self, arguments: StepArguments) -> tuple[tf.Tensor, list[Tensors]]:
        """Return (parameters, slots) after the update by a given gradient as ``gradient`` returns it."""
        entries = self.passes.forward.entries(arguments.params)
        by_place = self.passes.forward.entries(arguments.gradient)
        gradients, _ = self.update.clipped([by_place[k] for k, _ in self._weights()])
        update = arguments.updates + 1
        entries, slots, _ = self.update.update(
            entries, gradients, arguments.history, arguments.rates[0], update, arguments.blob_factors
        )
        return self._vector(entries), slots

    def _weights(self) -> Sequence[tuple[int, Piece]]:
        return self.passes.pieces.of_kind("weight")

    def _own_function(self) -> Any:
        """Return a pass as a separate function, not inlined into the calling graph.

        In a graph with a cycle TensorFlow 2.21 visits some gradients of MAX pooling before the forward kernel and then
        leaves the gradients on a kernel ten times slower.
        """
        return tf.function(self.passes.one_pass, autograph=False, experimental_attributes={"_noinline": True})

    def _vector(self, entries: Tensors) -> tf.Tensor:
        if not entries:
            return tf.zeros((0,), tf.float32)
        return tf.concat([tf.reshape(entry, (-1,)) for entry in entries], axis=0)

    def _passes(
        self, one_pass: Any, entries: Tensors, state: Any, i: tf.Tensor, arguments: StepArguments, *scale: tf.Tensor
    ) -> Pass:
        """Return the sum over the iter_size passes of step ``i`` of this call; ``scale`` is the loss's, if any."""
        step = tf.cast(arguments.step, tf.int32) + i
        with_debug = self.passes.with_debug

        def numbered(k: int | tf.Tensor, entries: Tensors, state: Any, earlier_gradients: Tensors) -> Pass:
            seed = tf.stack([arguments.key, step * iter_size + k])
            batch = {name: rows[i * iter_size + k] for name, rows in arguments.feeds.items()}
            finished = Pass(*one_pass(entries, state, seed, batch, earlier_gradients, *scale))
            if not with_debug:
                return finished
            return finished._replace(
                debug=tf.scatter_nd([[k]], finished.debug[tf.newaxis], (iter_size, finished.debug.shape[0]))
            )

        iter_size = self.solver.iter_size
        nothing = [tf.zeros(piece.shape) for _, piece in self._weights()] if with_debug else []
        first = numbered(0, entries, state, nothing)
        if iter_size == 1:
            return first

        def body(k: tf.Tensor, sums: Pass) -> Any:
            earlier_gradients = sums.gradients if with_debug else []
            next_pass = numbered(k, moved(entries, sums.statistics), sums.layer_state, earlier_gradients)
            gradients = [
                more if replaced else total + more
                for replaced, total, more in zip(
                    self.passes.is_replaced(), sums.gradients, next_pass.gradients, strict=True
                )
            ]
            debug = sums.debug + next_pass.debug  # each pass fills a row of its own
            return k + 1, next_pass._replace(gradients=gradients, loss=sums.loss + next_pass.loss, debug=debug)

        _, sums = tf.while_loop(lambda k, _: k < iter_size, body, (tf.constant(1), first), parallel_iterations=1)
        mean: Pass = sums._replace(loss=sums.loss / iter_size)
        return mean


def debug_of_update(old_entries: Tensors, steps: Mapping[int, tf.Tensor]) -> tf.Tensor:
    """Return what ``debug_info`` shows of an update, (2, n_blobs): magnitudes of the old blobs and of the steps."""
    data = [mean_magnitude(entry) for entry in old_entries]
    moves = [mean_magnitude(steps[k]) if k in steps else tf.zeros(()) for k in range(len(old_entries))]
    return tf.reshape(tf.stack([*data, *moves]), (2, -1)) if old_entries else tf.zeros((2, 0))
