"""Synchronous SGD: after every step all workers have the parameters that the mean gradient gives."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.exchange.strategies import Requires
from deepspark_ops.exchange.strategies.shared_rules import Gathered
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Sync(Gathered):
    """CaffeOnSpark's scheme: every step, the mean gradient over all live workers.

    Workers begin each step with the same parameters x. An update of SGD with momentum, weight decay included, is
    linear in gradient and history, so the mean of the workers' updates is the update by the mean gradient::

        v_i'    = momentum * v_i + rate * (g_i + decay * x)
        x'      = x - mean(v_i') = x - (momentum * mean(v_i) + rate * (mean(g_i) + decay * x))

    which is why movements are averaged here and each worker keeps its own history. It does not hold for solvers that
    divide by gradients, nor where ``clip_gradients`` cuts a worker's gradient and not the mean. A pass of p workers is
    one step with a batch p times as large.
    """

    name = "sync"
    source = "CaffeOnSpark (Yahoo, 2016)"
    round = "all"
    pulls = "after_round"
    requires = Requires(comm_period_one=True, sgd_only=True)

    def close_round(self, center: Vector, extras: tuple[Vector, ...], n_held: int) -> None:
        """Move the center by the mean."""
        self.move_by_mean(center, extras[0], n_held)

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/p: p steps move the center by their mean."""
        return 1.0 / n_workers


STRATEGY = Sync()
