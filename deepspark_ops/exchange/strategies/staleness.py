"""Downpour with pushes that weigh less the older their start is."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.strategies.downpour import Downpour


@dataclass(frozen=True)
class Staleness(Downpour):
    """Staleness-aware asynchronous SGD.

    Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning" (2015), section 3: the
    learning rate of a gradient is divided by its staleness. Here the movement is::

        s     = exchanges by other workers since this worker's last pull
        scale = push_scale / (1 + s)            or push_scale / max(1, s), as in the paper, without ``count_own``

    By the paper's rule the movements of p equal workers add up to p / (p - 1) of their mean. Movements of whole periods
    overshoot then: LeNet with four workers lost up to 4 points, and none if the worker's push is counted.

    Attributes:
        push_scale: Factor on the delta before the division; 0: 1.
        count_own: The worker's own push counts too.
    """

    name = "staleness"

    count_own: bool = True

    def push_factor(self, context: ExchangeContext) -> float:
        """Return the factor on a delta."""
        divisor = 1 + context.staleness if self.count_own else max(1, context.staleness)
        return (self.push_scale or 1.0) / divisor

    def progress_per_step(self, n_workers: int) -> float:
        """Return the scale at the staleness of p equally fast workers, p - 1."""
        return self.push_factor(ExchangeContext(n_workers, staleness=n_workers - 1))


STRATEGY = Staleness()
