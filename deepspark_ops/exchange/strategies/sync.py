"""Synchronous training: after every minibatch all workers have the parameters of the mean gradient's update."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.exchange.rounds.round_closing import RoundCloser
from deepspark_ops.exchange.rounds.solver_step import CenterSolver, SolverCloser
from deepspark_ops.exchange.strategies.shared_rules import GatheredGradients


@dataclass(frozen=True)
class Sync(GatheredGradients):
    """CaffeOnSpark's scheme: in every step, the mean gradient over all live workers, then the solver's update.

    With p workers that take gradients g_i at the same parameters x::

        g  = sum(g_i) / p
        x' = the solver's update of x by g: clipping, decay, history

    The server makes the update once, and keeps the history beside the center. So all six solver types are exact, also
    types that divide by gradients or clip gradients; a mean of the workers' own updates would not be exact. A worker
    that joins late or comes back catches up by a pull. A snapshot holds a single history. A pass of p workers is a step
    with a batch p times as large, at the mean of the rates of the workers' clocks.
    """

    name = "sync"
    comm_period_one = True
    solves_at_center = True
    history_at_center = True

    def closer(self, solver: CenterSolver | None) -> RoundCloser:
        """Return the solver at the center."""
        assert solver is not None, "settings hold one for a strategy that solves at the center"
        return SolverCloser(solver)

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/p: p steps move the center like one."""
        return 1.0 / n_workers


STRATEGY = Sync()
