"""Caffe's six solvers on the center: the update that the server makes by the gradient of all workers together.

The same rules as ``caffe_import.tf_graph.solvers``, in numpy, since the server starts without TensorFlow; order of
clipping, division and decay as in BVLC Caffe @9b89154, src/caffe/solvers/sgd_solver.cpp, ``ApplyUpdate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from deepspark_ops.exchange.rounds.round_closing import RoundContents
from deepspark_ops.param_vector import CHUNK_FLOATS, Vector, chunk_ranges

if TYPE_CHECKING:
    from caffe_import.net.param_layout import ParamLayout
    from caffe_import.solver.solver_spec import SolverSpec

_TWO_SLOTS = ("Adam", "AdaDelta")


@dataclass(frozen=True)
class SolvedBlob:
    """A blob that the solver updates: where it lies in the vector, and its factors on rate and weight decay."""

    start: int
    stop: int
    lr_mult: float
    decay_mult: float


@dataclass(frozen=True)
class CenterSolver:
    """A solver's type and constants, named as in its prototxt, and the blobs it updates. Pure functions.

    Statistics are none of its blobs: they meet in their own way.
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
        """Vectors of history that it keeps."""
        return 2 if self.type in _TWO_SLOTS else 1

    def update(
        self, params: Vector, slots: tuple[Vector, ...], gradient: Vector, *, learning_rate: float, update: int
    ) -> None:
        """Make one update, in place.

        Args:
            params: (n_params,), written.
            slots: ``n_slots`` vectors of history, (n_params,), written.
            gradient: (n_params,): mean over the workers of their sums over iter_size passes; not written.
            learning_rate: Of this update.
            update: Its number, from 1: Adam's t.
        """
        scale = self._scale(gradient)
        rule = _RULES[self.type]
        for blob in self.blobs:
            decay = np.float32(self.weight_decay * blob.decay_mult)
            rate = np.float32(learning_rate) * np.float32(blob.lr_mult)
            for span in _pieces(blob):
                part = params[span]
                piece = gradient[span] * scale
                if decay:
                    piece += decay * (part if self.regularization_type == "L2" else np.sign(part))
                part -= rule(self, piece, [slot[span] for slot in slots], rate, update)

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
        """Take what bears on updates from a solver and a training net's parameters."""
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
    """Ends rounds by one update of the center by the mean gradient. The history lies in the server's vectors 1 and up.

    So it belongs to no worker: who joins late, comes back or leaves changes nothing but the mean. The rate is the mean
    of those that the workers' clocks give, the number of the update the highest that one of them counts. A server that
    is killed here makes at most a part of one update twice.
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
    """Cut a blob so that what an update needs of it stays in a core's cache."""
    for start, stop in chunk_ranges(blob.stop - blob.start, CHUNK_FLOATS):
        yield slice(blob.start + start, blob.start + stop)


_Slots = list[Vector]
_Rule = Callable[[CenterSolver, Vector, _Slots, np.float32, int], Vector]


def _sgd(solver: CenterSolver, gradient: Vector, slots: _Slots, rate: np.float32, update: int) -> Vector:
    """Write h' = momentum h + rate g; return h'."""
    (history,) = slots
    history *= np.float32(solver.momentum)
    history += rate * gradient
    return history


def _nesterov(solver: CenterSolver, gradient: Vector, slots: _Slots, rate: np.float32, update: int) -> Vector:
    """Write h' = momentum h + rate g; return (1 + momentum) h' - momentum h."""
    momentum, before = np.float32(solver.momentum), slots[0].copy()
    moved = _sgd(solver, gradient, slots, rate, update)
    return (1 + momentum) * moved - momentum * before


def _adagrad(solver: CenterSolver, gradient: Vector, slots: _Slots, rate: np.float32, update: int) -> Vector:
    """Write h' = h + g^2; return rate g / (sqrt(h') + delta)."""
    (summed,) = slots
    summed += np.square(gradient)
    return rate * (gradient / _root(summed, solver.delta))


def _rmsprop(solver: CenterSolver, gradient: Vector, slots: _Slots, rate: np.float32, update: int) -> Vector:
    """Write h' = rms_decay h + (1 - rms_decay) g^2; return rate g / (sqrt(h') + delta)."""
    (averaged,) = slots
    _average(averaged, np.square(gradient), solver.rms_decay)
    return rate * (gradient / _root(averaged, solver.delta))


def _adadelta(solver: CenterSolver, gradient: Vector, slots: _Slots, rate: np.float32, update: int) -> Vector:
    """Return rate v, v = g sqrt((U + delta) / (G' + delta)). Slots: G, averages of g^2, then U, of v^2."""
    delta = np.float32(solver.delta)
    gradients, updates = slots
    _average(gradients, np.square(gradient), solver.momentum)
    value: Vector = gradient * np.sqrt((updates + delta) / (gradients + delta))
    _average(updates, np.square(value), solver.momentum)
    return rate * value


def _adam(solver: CenterSolver, gradient: Vector, slots: _Slots, rate: np.float32, update: int) -> Vector:
    """Return rate sqrt(1 - b2^t) / (1 - b1^t) m' / (sqrt(v') + delta). Slots: m, then v."""
    first, second = slots
    _average(first, gradient, solver.momentum)
    _average(second, np.square(gradient), solver.momentum2)
    correction = (1 - solver.momentum2**update) ** 0.5 / (1 - solver.momentum**update)
    return rate * np.float32(correction) * (first / _root(second, solver.delta))


def _root(squares: Vector, delta: float) -> Vector:
    """Return sqrt(squares) + delta: delta outside the root."""
    root: Vector = np.sqrt(squares)
    root += np.float32(delta)
    return root


def _average(average: Vector, value: Vector, decay: float) -> None:
    """Write ``decay average + (1 - decay) value`` into ``average``."""
    average *= np.float32(decay)
    average += np.float32(1 - decay) * value


_RULES: Mapping[str, _Rule] = {
    "SGD": _sgd,
    "Nesterov": _nesterov,
    "AdaGrad": _adagrad,
    "RMSProp": _rmsprop,
    "AdaDelta": _adadelta,
    "Adam": _adam,
}
