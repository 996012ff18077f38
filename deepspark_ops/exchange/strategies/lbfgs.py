"""L-BFGS on the whole training set: workers measure loss and gradient, the server chooses the next point."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.rounds.lbfgs_search import Evaluation, Request, Vector64, minimise
from deepspark_ops.exchange.rounds.round_closing import RoundCloser, RoundContents
from deepspark_ops.exchange.rounds.solver_step import CenterSolver
from deepspark_ops.exchange.strategies.base import Strategy
from deepspark_ops.exchange.strategies.shared_rules import GatheredGradients
from deepspark_ops.param_vector import Vector

NOTE_EVERY = 10


@dataclass(frozen=True)
class Lbfgs(GatheredGradients):
    """Limited-memory BFGS with a strong Wolfe line search in place of the solver.

    Nocedal and Wright, "Numerical Optimization" (2006), algorithms 7.4, 7.5, 3.5 and 3.6 (``lbfgs_search``).

    The minimised function is the mean loss over a fixed set of minibatches, plus the solver's weight decay. Each worker
    reads its share of the training set once, ``comm_period`` minibatches (``auto``: its whole share), keeps the share
    in memory and measures over all of its minibatches::

        round:   every worker pushes its mean gradient, and its mean loss beside
        server:  x_next = the line search's next point                        in float64
        worker:  local' = x_next

    The center is the end of the last line search, so tests and snapshots never see a trial point. Line search and
    memory live in the server's process, a child of the driver. When a worker comes or goes, the minimised function
    changes: the search begins again at the center, with an empty memory.

    Attributes:
        memory: Pairs that the curvature is remembered by; each takes 16 bytes per parameter.
    """

    name = "lbfgs"
    solves_at_center = True
    repeats_data = True
    result = 1
    server_vectors = 2  # the sum of pushes, and the point to measure next

    memory: int = 10

    def __post_init__(self) -> None:
        """Refuse a memory outside its range.

        Raises:
            ConfigError: Outside [1, 100].
        """
        if not 1 <= self.memory <= 100:
            msg = f"memory={self.memory}: must be in [1, 100]"
            raise ConfigError(msg)

    def closer(self, solver: CenterSolver | None) -> RoundCloser:
        """Return the closer with the search."""
        assert solver is not None, "settings hold one for a strategy that solves at the center"
        return LbfgsCloser(solver, self.memory)

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1: steps of the search have no rate."""
        return 1.0

    def for_workers(self, n_workers: int) -> Strategy:
        """Return this strategy: a single worker measures for the server like several workers."""
        return self


class LbfgsCloser:
    """Ends rounds by sending the measurements to the search."""

    def __init__(self, solver: CenterSolver, memory: int) -> None:
        """Start with the first round."""
        self._solver = solver
        self._memory = memory
        self._members: frozenset[int] = frozenset()
        self._search: Generator[Request, Evaluation, None] | None = None
        self._iteration = 0

    def close(self, contents: RoundContents) -> list[str]:
        """See ``RoundCloser``."""
        members = frozenset(contents.notes)
        n_new = sum(note.is_first for note in contents.notes.values())
        mean = contents.mean_push()
        contents.forget_pushes()
        was_running = self._search is not None
        if self._search is None or n_new or members != self._members:
            self._members, self._iteration = members, 0
            self._search = minimise(contents.center.astype(np.float64), self._memory)
            next(self._search)
            contents.extras[1][:] = contents.center
            if was_running or n_new < len(members):
                # Not every worker has measured at the center: this round makes all workers measure there.
                return [f"lbfgs: measured by workers {sorted(members)} from now on; the search begins again"]
        requested = contents.extras[1].astype(np.float64)
        loss = sum(note.loss for note in contents.notes.values()) / len(members)
        request = self._search.send(self._evaluation(requested, loss, mean))
        contents.extras[1][:] = request.point
        if request.iteration == self._iteration:
            return []
        self._iteration = request.iteration
        contents.center[:] = request.accepted
        if request.iteration % NOTE_EVERY != 1:
            return []
        return [f"lbfgs: iteration {request.iteration}, loss {loss:.6g} over the whole set"]

    def _evaluation(self, point: Vector64, loss: float, mean: Vector) -> Evaluation:
        """Add weight decay; blobs that the solver does not move have no gradient."""
        gradient = np.zeros_like(point)
        for blob in self._solver.blobs:
            if blob.lr_mult == 0:
                continue
            span = slice(blob.start, blob.stop)
            decay = self._solver.weight_decay * blob.decay_mult
            gradient[span] = mean[span] + decay * point[span]
            loss += 0.5 * decay * float(point[span] @ point[span])
        return Evaluation(loss, gradient)


STRATEGY = Lbfgs()
