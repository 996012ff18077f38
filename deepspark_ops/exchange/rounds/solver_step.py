"""Caffe's six solvers on the center: the server's update by the gradient of all workers.

The rules of ``caffe_import.solver.update_rules`` in numpy: the server starts without TensorFlow. Clipping, division and
decay follow the order of BVLC Caffe @9b89154, src/caffe/solvers/sgd_solver.cpp, ``ApplyUpdate``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from caffe_import.solver.update_rules import RULES, Operations, UpdateRequest
from deepspark_ops.exchange.rounds.round_closing import RoundContents
from deepspark_ops.param_vector import Vector, chunk_ranges

if TYPE_CHECKING:
    from caffe_import.net.param_layout import ParamLayout
    from caffe_import.solver.solver_spec import SolverSpec


_PIECE_FLOATS: Final = 31 * 1024
"""Number of floats in an update's piece. Intermediate arrays stay in a core's cache, and below the 128 KiB from which
glibc may map and clear new memory for every array (measured: three to eight times slower)."""


def _add(terms: list[Vector]) -> Vector:
    total, *further_terms = terms
    for term in further_terms:
        total += term
    return total


_OPERATIONS = Operations(sqrt=np.sqrt, square=np.square, sign=np.sign, add=_add, float64=np.float64, float32=np.float32)


@dataclass(frozen=True)
class SolvedBlob:
    """A blob of a solver: its range in the vector, and its factors on rate and weight decay."""

    start: int
    stop: int
    lr_mult: float
    decay_mult: float


@dataclass(frozen=True)
class CenterSolver:
    """Type and constants of a solver, named as in its prototxt, and the solver's blobs. Pure functions.

    Blobs of statistics are left out: workers and server average statistics separately (``StatisticBlobs``).
    """

    type: str
    momentum: float
    momentum2: float
    rms_decay: float
    delta: float
    weight_decay: float
    regularization_type: str
    clip_gradients: float
    iter_size: int
    blobs: tuple[SolvedBlob, ...]

    @property
    def n_slots(self) -> int:
        """Number of history vectors."""
        return RULES[self.type].n_slots

    def update(
        self, params: Vector, slots: tuple[Vector, ...], gradient: Vector, *, learning_rate: float, update: int
    ) -> None:
        """Make an update, in place.

        Args:
            params: (n_params,), written.
            slots: ``n_slots`` vectors of history, (n_params,), written.
            gradient: (n_params,): mean over the workers of their sums over iter_size passes; not written.
            learning_rate: Rate of this update.
            update: Number of the update, from 1: Adam's t.
        """
        scale = self._scale(gradient)
        rule = RULES[self.type]
        for blob in self.blobs:
            rate = np.float32(learning_rate) * np.float32(blob.lr_mult)
            for span in _pieces(blob):
                request = UpdateRequest(
                    ops=_OPERATIONS,
                    weights=params[span],
                    gradient=gradient[span] * scale,
                    decay=self.weight_decay * blob.decay_mult,
                    slots=tuple(slot[span] for slot in slots),
                    rate=rate,
                    update=update,
                    solver=self,
                )
                solver_update = rule.compute_update(request)
                params[span] -= solver_update.step
                for slot, moved in zip(slots, solver_update.slots, strict=True):
                    slot[span] = moved

    def _scale(self, gradient: Vector) -> np.float32:
        """Return the factor on the gradient: clipping by its norm, then division by iter_size."""
        scale = 1.0 / self.iter_size
        if self.clip_gradients >= 0:
            norm = sum(float(np.vdot(gradient[span], gradient[span])) for b in self.blobs for span in _pieces(b)) ** 0.5
            if norm > self.clip_gradients:
                scale *= self.clip_gradients / norm
        return np.float32(scale)

    @classmethod
    def from_spec(cls, solver: SolverSpec, layout: ParamLayout) -> CenterSolver:
        """Return the constants and blobs of a solver and a training net's parameters."""
        constants = {field.name: getattr(solver, field.name) for field in fields(cls) if field.name != "blobs"}
        blobs = tuple(
            SolvedBlob(entry.offset, entry.stop, entry.lr_mult, entry.decay_mult)
            for entry in layout.entries
            if entry.kind == "weight"
        )
        return cls(**constants, blobs=blobs)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> CenterSolver:
        """Inverse of ``to_json``."""
        return cls(**{**plain, "blobs": tuple(SolvedBlob(**blob) for blob in plain["blobs"])})


class SolverCloser:
    """Ends a round by one update of the center with the mean gradient. The history is in the server's vectors 1 and up.

    No worker owns the history: a worker that joins late, comes back or leaves changes only the mean. The rate is the
    mean of the workers' rates by their clocks. The update's number is the highest count of a worker. A server that is
    killed during an update repeats a part of this update at most.
    """

    def __init__(self, solver: CenterSolver) -> None:
        """Take the run's solver."""
        self._solver = solver

    def close(self, contents: RoundContents) -> list[str]:
        """See ``RoundCloser``."""
        notes = contents.notes.values()
        rate = sum(note.learning_rate for note in notes) / len(notes)
        update = max(note.update for note in notes)
        history = contents.extras[1:]
        self._solver.update(contents.center, history, contents.mean_push(), learning_rate=rate, update=update)
        contents.forget_pushes()
        return []


def _pieces(blob: SolvedBlob) -> Iterator[slice]:
    for start, stop in chunk_ranges(blob.stop - blob.start, _PIECE_FLOATS):
        yield slice(blob.start + start, blob.start + stop)
