"""The graph of training steps on one device: passes, then the update, in loops that carry the parameters' blobs.

Pure functions of tensors, traced by ``train_step``. Source of the order within a step: BVLC Caffe @9b89154,
src/caffe/solver.cpp ``Step``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from caffe_import.devices.pieces import Piece
from caffe_import.files.hdf5_output import hdf5_output_inputs
from caffe_import.net.debug_info import n_pass_values
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.tf_graph.debug_values import mean_magnitude
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.loss_scaling import Scaling, all_finite, chosen
from caffe_import.tf_graph.step.one_pass import Pass, PassGraph, moved
from caffe_import.tf_graph.step.solver_update import UpdateGraph

Tensors = list[tf.Tensor]
_SCALE_REPORTS = (tf.float32, tf.bool)
"""Of each step: the loss scale that it began with, and whether it was made."""


class _Updated(NamedTuple):
    """What one step leaves; ``steps`` is what was subtracted, ``before`` what it was subtracted from.

    Without loss scaling ``scaling`` and ``is_made`` are empty.
    """

    entries: Tensors
    slots: list[Tensors]
    steps: Mapping[int, tf.Tensor]
    before: Tensors
    norm: tf.Tensor
    scaling: Scaling | tuple[()] = ()
    is_made: tuple[tf.Tensor, ...] = ()


@dataclass(frozen=True)
class StepGraph:
    """The graph: the parameters are split once per call, the loop carries blobs, one concat makes the vector again.

    The loop carries blobs and not the vector: each blob's rule then uses its own constants (lr_mult, decay_mult), and
    no step pays for a split and a concat of all parameters.
    """

    net: NetSpec
    solver: SolverSpec
    passes: PassGraph
    update: UpdateGraph

    def run(self, given: StepArguments) -> Any:
        """Return the state and the reports after as many updates as there are rates.

        These are parameters, slots, layer state, losses, outputs, norms, rows, the two arrays of ``StepDebug`` if
        asked, and where the loss is scaled the next scale, its good steps and for each step the scale that it began
        with and whether it was made. A step whose gradient is not finite leaves parameters, statistics and slots as
        they were; what layers carry to the next pass moves on.
        """
        n_steps = tf.size(given.rates)
        entries = self.passes.forward.entries(given.params)
        reported, taken = self.passes.reported(), hdf5_output_inputs(self.net)
        reports = [
            tf.TensorArray(tf.float32, n_steps, element_shape=shape)
            for shape in ((), (), *(self.net.blob_shapes[name] for name in reported), *self._debug_shapes())
        ]
        reports += [tf.TensorArray(tf.int32, n_steps, element_shape=()) for _ in taken]
        scaling = self._scaling(given)
        reports += [tf.TensorArray(dtype, n_steps, element_shape=()) for dtype in _SCALE_REPORTS if scaling]
        one_pass = self._own_function()

        def body(i: tf.Tensor, entries: Tensors, slots: list[Tensors], state: Any, scaling: Any, reports: Any) -> Any:
            done = self._passes(one_pass, entries, state, i, given, *scaling[:1])
            found = self._updated(entries, slots, done, i, given, scaling)
            values = [done.loss, found.norm, *(done.outputs[name] for name in reported)]
            if self.passes.with_debug:
                values += [done.debug, debug_of_update(found.before, found.steps)]
            values += [*(done.n_rows[name] for name in taken), *scaling[:1], *found.is_made]
            reports = [report.write(i, value) for report, value in zip(reports, values, strict=True)]
            return i + 1, found.entries, found.slots, done.layer_state, found.scaling, reports

        _, entries, slots, layer_state, scaling, reports = tf.while_loop(
            lambda i, *_: i < n_steps,
            body,
            (tf.constant(0), entries, given.history, given.layer_state, scaling, reports),
            parallel_iterations=1,
        )
        losses, norms, *others = [report.stack() for report in reports]
        of_scaling = [*scaling[:2], *others[len(others) - len(_SCALE_REPORTS) :]] if scaling else []
        others = others[: len(others) - len(_SCALE_REPORTS)] if scaling else others
        n_outputs, first_rows = len(reported), len(others) - len(taken)
        return (
            self._vector(entries),
            slots,
            layer_state,
            losses,
            dict(zip(reported, others[:n_outputs], strict=True)),
            norms,
            dict(zip(taken, others[first_rows:], strict=True)),
            others[n_outputs:first_rows],
            of_scaling,
        )

    def _scaling(self, given: StepArguments) -> Scaling | tuple[()]:
        if given.loss_scale is None:
            return ()
        return Scaling(given.loss_scale, given.good_steps, tf.constant(0, tf.int64))

    def _updated(
        self, entries: Tensors, slots: list[Tensors], done: Pass, i: tf.Tensor, given: StepArguments, scaling: Any
    ) -> _Updated:
        """Make step ``i`` from what its passes gave."""
        before = moved(entries, done.statistics)
        gradients, norm = self.update.clipped(done.gradients)
        update = given.updates + tf.cast(i, tf.int64) + 1
        if scaling:
            update -= scaling.n_skipped
        found = self.update.update(before, gradients, slots, given.rates[i], update, given.layer_factor)
        if not scaling:
            return _Updated(*found, before, norm)
        is_made = all_finite(done.gradients)
        nothing = {position: tf.zeros_like(step) for position, step in found[2].items()}
        entries, slots, steps = chosen(is_made, found, (entries, slots, nothing))
        return _Updated(entries, slots, steps, before, norm, scaling.after(is_made), (is_made,))

    def gradient(self, given: StepArguments) -> Any:
        """Return (gradient, parameters, layer state, loss, outputs, rows, debug) of one step's passes; no update.

        The gradient is the sum over the passes before clipping and decay, float32 (n_params,), 0 for statistics. Where
        the loss is scaled, whether it is finite is returned too.
        """
        entries = self.passes.forward.entries(given.params)
        scaling = self._scaling(given)
        one_pass = self._own_function()
        done = self._passes(one_pass, entries, given.layer_state, tf.constant(0), given, *scaling[:1])
        by_place = dict(zip((k for k, _ in self._weights()), done.gradients, strict=True))
        gradient = self._vector([by_place.get(k, tf.zeros_like(entry)) for k, entry in enumerate(entries)])
        params = self._vector(moved(entries, done.statistics)) if done.statistics else given.params
        debug = [done.debug] if self.passes.with_debug else []
        is_made = [all_finite(done.gradients)] if scaling else []
        return gradient, params, done.layer_state, done.loss, done.outputs, done.n_rows, debug, is_made

    def apply(self, given: StepArguments) -> Any:
        """Return (parameters, slots) after the update by a given gradient as ``gradient`` returns it."""
        entries = self.passes.forward.entries(given.params)
        by_place = self.passes.forward.entries(given.gradient)
        gradients, _ = self.update.clipped([by_place[k] for k, _ in self._weights()])
        update = given.updates + 1
        entries, slots, _ = self.update.update(
            entries, gradients, given.history, given.rates[0], update, given.layer_factor
        )
        return self._vector(entries), slots

    def _debug_shapes(self) -> list[tuple[int, ...]]:
        if not self.passes.with_debug:
            return []
        return [(self.solver.iter_size, n_pass_values(self.net)), (2, len(self.net.params.entries))]

    def _weights(self) -> Sequence[tuple[int, Piece]]:
        return self.passes.pieces.of_kind("weight")

    def _own_function(self) -> Any:
        """Return a pass as a function of its own, kept out of the graph that calls it.

        In a graph with a cycle TensorFlow 2.21 visits some gradients of MAX pooling before their forward kernel and
        then leaves them on a kernel ten times slower.
        """
        return tf.function(self.passes.one_pass, autograph=False, experimental_attributes={"_noinline": True})

    def _vector(self, entries: Tensors) -> tf.Tensor:
        if not entries:
            return tf.zeros((0,), tf.float32)
        return tf.concat([tf.reshape(entry, (-1,)) for entry in entries], axis=0)

    def _passes(
        self, one_pass: Any, entries: Tensors, state: Any, i: tf.Tensor, given: StepArguments, *scale: tf.Tensor
    ) -> Pass:
        """Return the sum over the iter_size passes of step ``i`` of this call; ``scale`` is the loss's, if any."""
        step = tf.cast(given.step, tf.int32) + i
        with_debug = self.passes.with_debug

        def numbered(k: int | tf.Tensor, entries: Tensors, state: Any, before: Tensors) -> Pass:
            seed = tf.stack([given.key, step * iter_size + k])
            batch = {name: rows[i * iter_size + k] for name, rows in given.feeds.items()}
            done = Pass(*one_pass(entries, state, seed, batch, before, *scale))
            if not with_debug:
                return done
            return done._replace(debug=tf.scatter_nd([[k]], done.debug[tf.newaxis], (iter_size, done.debug.shape[0])))

        iter_size = self.solver.iter_size
        nothing = [tf.zeros(piece.shape) for _, piece in self._weights()] if with_debug else []
        first = numbered(0, entries, state, nothing)
        if iter_size == 1:
            return first

        def body(k: tf.Tensor, sums: Pass) -> Any:
            before = sums.gradients if with_debug else []
            one = numbered(k, moved(entries, sums.statistics), sums.layer_state, before)
            gradients = [
                more if replaced else total + more
                for replaced, total, more in zip(self.passes.is_replaced(), sums.gradients, one.gradients, strict=True)
            ]
            debug = sums.debug + one.debug  # each pass fills a row of its own
            return k + 1, one._replace(gradients=gradients, loss=sums.loss + one.loss, debug=debug)

        _, sums = tf.while_loop(lambda k, _: k < iter_size, body, (tf.constant(1), first), parallel_iterations=1)
        mean: Pass = sums._replace(loss=sums.loss / iter_size)
        return mean


def debug_of_update(before: Tensors, steps: Mapping[int, tf.Tensor]) -> tf.Tensor:
    """Return what ``debug_info`` shows of an update, (2, n_blobs): size of each blob before it and of its step."""
    data = [mean_magnitude(entry) for entry in before]
    moves = [mean_magnitude(steps[k]) if k in steps else tf.zeros(()) for k in range(len(before))]
    return tf.reshape(tf.stack([*data, *moves]), (2, -1)) if before else tf.zeros((2, 0))
