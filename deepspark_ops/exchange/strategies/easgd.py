"""Asynchronous elastic averaging (EASGD); with the Nesterov solver it is the paper's EAMSGD."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext, Strategy
from deepspark_ops.exchange.strategies.shared_rules import Elastic, scale
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Easgd(Elastic):
    """Worker and center move towards each other by the same elastic difference.

    Zhang, Choromanska and LeCun, "Deep learning with Elastic Averaging SGD" (2015), Algorithm 1, steps a) and b),
    in the sequential form: one worker exchanges with the center at a time, chunk by chunk::

        e       = alpha * (local - center)
        local'  = local  - e
        center' = center + e

    Both lines use one ``e``, so the sum of workers and center is kept, up to float32 rounding. The solver's history
    stays with the worker, but for a share of its momentum (SGD, Nesterov), which is the center's from then on: without
    it workers swing about the center (``train.worker.center_velocity``), and the rate can be half as large. 0 is the
    paper's algorithm. The eigenvalue of worker - center is 1 - 2 alpha per exchange: above 0.5 it overshoots.

    Attributes:
        momentum_from_center: The share, in [0, 1].
    """

    name = "easgd"
    aliases = ("eamsgd",)
    source = "Zhang, Choromanska, LeCun 2015, Algorithm 1 (EASGD) and 2 (EAMSGD)"

    momentum_from_center: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a share outside [0, 1].

        Raises:
            ConfigError: Outside [0, 1].
        """
        share = self.momentum_from_center
        if not 0.0 <= share <= 1.0:
            msg = f"momentum_from_center={share:g}: must be in [0, 1]; 0 leaves workers their own momentum"
            raise ConfigError(msg)

    def for_workers(self, n_workers: int) -> Strategy:
        """See ``Strategy``; two workers keep their momentum: with their moving rate of 0.45 it would gain nothing."""
        return replace(self, momentum_from_center=0.0) if n_workers == 2 else super().for_workers(n_workers)

    def rate_limit(self, n_workers: int) -> float:
        """Return 8, twice what others bear: after a long warm-up, which such a factor has."""
        return 8.0

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``push = alpha (local - center)`` and ``new_local = local - push``."""
        np.subtract(local, center, out=push)
        scale(push, context.moving_rate)
        np.subtract(local, push, out=new_local)


STRATEGY = Easgd()
