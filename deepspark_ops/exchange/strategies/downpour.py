"""Downpour SGD: workers push their movements, and continue from the center."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.strategies.shared_rules import Additive, scale
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Downpour(Additive):
    """Every exchange adds a worker's movement to the center; the worker continues from the center.

    Dean et al., "Large Scale Distributed Deep Networks" (2012), section 4.1 and Algorithm 1, with the solver at the
    worker. A push is the movement of ``comm_period`` local updates, not a sum of gradients::

        delta   = local - start                 start: the parameters after the worker's last exchange
        center' = center + scale * delta
        local'  = center'                       as pulled, with the own delta added

    With p workers that move at once from the same start, unscaled deltas of several steps overshoot: training diverges
    from p = 4 on. ``push_scale`` 0 means 1/p, the mean of the workers' movements. The solver's history stays with the
    worker. A history that starts anew at every exchange never grows: at ``comm_period=1`` a momentum of 0.9 made a
    tenth of the progress (cifar10_quick with two workers lost 8 points). ``comm_period: auto`` takes at least 10:
    within a period a worker's steps have no delay, and delayed single steps with momentum swing (4 points).

    Attributes:
        push_scale: Factor on the delta; 0: 1/p. With ``comm_period=1`` 1 is the paper's own choice.
    """

    name = "downpour"
    keeps_start = True
    least_auto_period = 10

    push_scale: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a factor outside [0, 1].

        Raises:
            ConfigError: Outside [0, 1].
        """
        if not 0.0 <= self.push_scale <= 1.0:
            msg = f"push_scale={self.push_scale:g}: must be in [0, 1]; 0 means 1/n_workers"
            raise ConfigError(msg)

    def push_factor(self, context: ExchangeContext) -> float:
        """Return the factor on a delta."""
        return self.push_scale or 1.0 / context.n_workers

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``push = scale (local - start)`` and ``new_local = center + push``."""
        np.subtract(local, start, out=push)
        scale(push, self.push_factor(context))
        np.add(center, push, out=new_local)

    def progress_per_step(self, n_workers: int) -> float:
        """Return the scale: the center's movement by a step of a worker."""
        return self.push_factor(ExchangeContext(n_workers))


STRATEGY = Downpour()
