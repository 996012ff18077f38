"""DiLoCo: every round the center makes an outer Nesterov step by the workers' mean movement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.exchange.strategies.shared_rules import GatheredMovements, refuse_diverging_step, scale
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Diloco(GatheredMovements):
    """Local steps inside, Nesterov momentum outside.

    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023, arXiv 2311.08105),
    Algorithm 1, with the solver as the inner optimizer. Workers wait for each other; the outer gradient is the mean
    movement with the other sign::

        mean     = sum(local - start) / p
        velocity = outer_momentum * velocity + mean
        center'  = center + outer_rate * (outer_momentum * velocity + mean)
        local'   = center', when every worker has pushed

    The solver's history stays with the worker. ``comm_period: auto`` takes at least 10, because the method makes an
    outer step for many inner steps. With 0.7 and 0.3 the outer steps add up to the workers' mean movement. The paper's
    0.9 is for hundreds of local steps: LeNet with eight workers lost 2.3 points with 0.9, and 0.3 points with 0.3
    (docs/evidence/strategies.md).

    Attributes:
        outer_rate: Factor on the outer step.
        outer_momentum: 0: none, and with ``outer_rate: 1`` it is ``local_sgd``.
    """

    name = "diloco"
    round = "all"
    pulls = "after_round"
    least_auto_period = 10
    server_vectors = 2  # the sum of pushes, and the outer velocity
    saved_vectors = (1,)  # the velocity

    outer_rate: float = 0.7
    outer_momentum: float = 0.3

    def __post_init__(self) -> None:
        """Refuse a momentum or rate that diverges.

        Raises:
            ConfigError: Names the option.
        """
        refuse_diverging_step("outer", self.outer_momentum, self.outer_rate)

    def close_round(self, center: Vector, extras: tuple[Vector, ...], n_held: int) -> None:
        """Make the outer step."""
        mean, velocity = extras
        scale(mean, 1.0 / n_held)
        scale(velocity, self.outer_momentum)
        np.add(velocity, mean, out=velocity)
        step = velocity.copy()
        scale(step, self.outer_momentum)
        np.add(step, mean, out=step)
        scale(step, self.outer_rate)
        np.add(center, step, out=center)
        mean.fill(0.0)

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/p, times the sum of the outer steps' factors."""
        return min(1.0, self.outer_rate / (1.0 - self.outer_momentum) / n_workers)


STRATEGY = Diloco()
