"""Asynchronous elastic averaging (EASGD); with the Nesterov solver it is the paper's EAMSGD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.exchange.strategies.base import ExchangeContext
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
    stays with the worker. The eigenvalue of worker - center is 1 - 2 alpha per exchange: above 0.5 it overshoots.
    """

    name = "easgd"
    aliases = ("eamsgd",)
    source = "Zhang, Choromanska, LeCun 2015, Algorithm 1 (EASGD) and 2 (EAMSGD)"

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``push = alpha (local - center)`` and ``new_local = local - push``."""
        np.subtract(local, center, out=push)
        scale(push, context.moving_rate)
        np.subtract(local, push, out=new_local)


STRATEGY = Easgd()
