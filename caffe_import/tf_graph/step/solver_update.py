"""The graph of a solver's update: clipping, division by iter_size, decay and the rule, piece by piece.

Source: BVLC Caffe @9b89154, src/caffe/solvers/sgd_solver.cpp, ``ApplyUpdate``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import tensorflow as tf

from caffe_import.devices.pieces import Piece, PieceLayout
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import Operations, SolverRule, UpdateRequest

Tensors = list[tf.Tensor]
_OPERATIONS = Operations(
    sqrt=tf.sqrt,
    square=tf.square,
    sign=tf.sign,
    add=tf.add_n,
    float64=partial(tf.cast, dtype=tf.float64),
    float32=partial(tf.cast, dtype=tf.float32),
)


def _anywhere(_: int) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class UpdateGraph:
    """Makes updates.

    Attributes:
        solver: The constants.
        rule: The solver's rule.
        pieces: What is updated.
        with_grad_norm: Compute the gradient's norm.
        on: Device number -> scope in which its operations are made.
        with_blob_factors: Does each call give a factor on the rate of every blob? On one device.
    """

    solver: SolverSpec
    rule: SolverRule
    pieces: PieceLayout
    with_grad_norm: bool
    on: Callable[[int], AbstractContextManager[None]] = _anywhere
    with_blob_factors: bool = False

    def clipped(self, gradients: Tensors) -> tuple[Tensors, tf.Tensor]:
        """Scale the sum over the passes: clip by its norm (before any decay), then divide by iter_size.

        Returns:
            One gradient per weight's piece and the norm before, 0 unless it is asked for.
        """
        scale = tf.constant(1.0 / self.solver.iter_size)
        norm = tf.zeros(())
        if self.with_grad_norm and gradients:
            squares = self._on_each(lambda gradient: tf.reduce_sum(tf.square(gradient)), gradients)
            norm = tf.sqrt(tf.add_n(squares))
        if self.solver.clip_gradients >= 0:
            limit = tf.constant(self.solver.clip_gradients, tf.float32)
            scale *= tf.where(norm > limit, limit / norm, 1.0)
        elif self.solver.iter_size == 1:
            return gradients, norm
        return self._on_each(lambda gradient: scale * gradient, gradients), norm

    def update(
        self,
        pieces: Tensors,
        gradients: Tensors,
        slots: Sequence[Tensors],
        rate: tf.Tensor,
        update: tf.Tensor,
        blob_factors: tf.Tensor | None = None,
    ) -> tuple[Tensors, list[Tensors], dict[int, tf.Tensor]]:
        """Return pieces and slots after the update, and what was subtracted by position among the pieces.

        Args:
            pieces: Of the parameters.
            gradients: One for each piece of a weight, as ``clipped`` returns them.
            slots: The solver's history.
            rate: Of this update, float32 scalar.
            update: Its number, from 1.
            blob_factors: Multiply the rates of the blobs, float32 (n_blobs,).
        """
        pieces, slots, steps = list(pieces), [list(slot) for slot in slots], {}
        statistics = self._decayed_statistics()
        gradients = [*gradients, *(tf.zeros_like(pieces[k]) for k, _ in statistics)]
        updated = [*self.pieces.of_kind("weight"), *statistics]
        # One product for each multiplier, not for each blob: a deep net has hundreds.
        multipliers = {piece.entry.lr_mult for _, piece in updated}
        rates = {mult: rate if mult == 1 else rate * mult for mult in multipliers}
        factors = None if blob_factors is None else tf.unstack(blob_factors, len(pieces))
        updated_before: dict[int, Tensors] = {}
        for gradient, (k, piece) in zip(gradients, updated, strict=True):
            # TensorFlow would multiply all weights and history while the passes run: two vectors more in memory.
            with self.on(piece.device), tf.control_dependencies([gradient, *updated_before.get(piece.device, ())]):
                blob_update = self.rule.compute_update(
                    UpdateRequest(
                        ops=_OPERATIONS,
                        weights=pieces[k],
                        gradient=gradient,
                        decay=self.solver.weight_decay * piece.entry.decay_mult,
                        slots=tuple(slot[k] for slot in slots),
                        rate=_times(rates[piece.entry.lr_mult], None if factors is None else factors[k]),
                        update=update,
                        solver=self.solver,
                    )
                )
                pieces[k] -= blob_update.step
                updated_before[piece.device] = [pieces[k]]
            steps[k] = blob_update.step
            for slot, value in zip(slots, blob_update.slots, strict=True):
                slot[k] = value
        return pieces, slots, steps

    def _on_each(self, compute: Callable[[tf.Tensor], tf.Tensor], gradients: Tensors) -> Tensors:
        """Return ``compute`` of each gradient, made on the device of its piece."""
        computed = []
        for gradient, (_, piece) in zip(gradients, self.pieces.of_kind("weight"), strict=True):
            with self.on(piece.device):
                computed.append(compute(gradient))
        return computed

    def _decayed_statistics(self) -> Sequence[tuple[int, Piece]]:
        """Return the statistics with weight decay in the history; the statistics' values stay, because the rate is 0.

        No code reads this history, but Caffe's snapshots have the history. A history that is scaled by the rate stays
        0.
        """
        if self.solver.weight_decay == 0 or self.rule.rate_in_history:
            return []
        return [(k, piece) for k, piece in self.pieces.of_kind("statistic") if piece.entry.decay_mult != 0]


def _times(rate: tf.Tensor, factor: tf.Tensor | None) -> tf.Tensor:
    return rate if factor is None else rate * factor
