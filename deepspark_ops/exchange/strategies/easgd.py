"""Asynchronous elastic averaging (EASGD); with the Nesterov solver it is the paper's EAMSGD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.exchange.strategies import Strategy, Terms
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Easgd(Strategy):
    """Worker and center are tied by a spring, with the same force on both.

    Zhang, Choromanska and LeCun, "Deep learning with Elastic Averaging SGD" (2015), Algorithm 1, steps a) and b),
    in the sequential form: one worker meets the center at a time, chunk by chunk::

        e       = alpha * (local - center)
        local'  = local  - e
        center' = center + e

    Both lines use one ``e``, so the sum of workers and center is kept, up to float32 rounding. The solver's history
    stays with the worker. The eigenvalue of worker - center is 1 - 2 alpha per exchange: above 0.5 it overshoots.
    """

    name = "easgd"
    aliases = ("eamsgd",)
    source = "Zhang, Choromanska, LeCun 2015, Algorithm 1 (EASGD) and 2 (EAMSGD)"
    unit = "weights"
    invariant = "pushes_add_up"
    has_moving_rate = True

    def worker_chunk(
        self,
        local: Vector,
        center: Vector,
        new_local: Vector,
        push: Vector,
        start: Vector,
        terms: Terms,
    ) -> None:
        """Write ``push = alpha (local - center)`` and ``new_local = local - push``."""
        np.subtract(local, center, out=push)
        np.multiply(push, np.float32(terms.moving_rate), out=push)
        np.subtract(local, push, out=new_local)

    def server_chunk(self, center: Vector, extras: tuple[Vector, ...], push: Vector, terms: Terms, n_held: int) -> int:
        """Add the elastic difference."""
        np.add(center, push, out=center)
        return 0

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/(p+1): a step moves one of the p+1 points whose mean trains."""
        return 1.0 / (n_workers + 1)

    def default_moving_rate(self, n_workers: int) -> float:
        """Return min(0.45, 0.9/p): the paper's beta = p alpha = 0.9, kept below the overshoot."""
        return min(0.45, 0.9 / n_workers)


STRATEGY = Easgd()
