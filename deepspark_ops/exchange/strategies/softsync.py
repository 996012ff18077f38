"""n-softsync: the center moves once for several pushes; nobody waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies import Strategy, Terms
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Softsync(Strategy):
    """The server gathers movements and applies their mean.

    Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning" (2015), section 2, protocol
    n-softsync, with workers' movements in place of gradients::

        sum    += local - start
        every ``updates_per_apply`` pushes:  center' = center + sum / updates_per_apply;  sum = 0
        local'  = center, after the own push

    Every exchange pushes every chunk once, so each chunk counts its own pushes. The worker's history starts again, as
    it goes on from parameters it has not made.

    Attributes:
        updates_per_apply: Pushes whose mean moves the center.
    """

    name = "softsync"
    source = "Zhang, Gupta, Lian, Liu 2015, section 2, n-softsync"
    unit = "delta"
    round = "pushes"
    pulls = "after"
    keeps_start = True
    history = "restarted"
    lock = "striped"

    updates_per_apply: int = 2

    def __post_init__(self) -> None:
        """Refuse to wait for nothing.

        Raises:
            ConfigError: Below 1.
        """
        if self.updates_per_apply < 1:
            msg = f"updates_per_apply={self.updates_per_apply}: must be at least 1"
            raise ConfigError(msg)

    @property
    def server_vectors(self) -> int:
        """One: the sum of pushes."""
        return 1

    def worker_chunk(
        self,
        local: Vector,
        center: Vector,
        new_local: Vector,
        push: Vector,
        start: Vector,
        terms: Terms,
    ) -> None:
        """Write ``push = local - start``; the center is read afterwards."""
        np.subtract(local, start, out=push)

    def server_chunk(self, center: Vector, extras: tuple[Vector, ...], push: Vector, terms: Terms, n_held: int) -> int:
        """Add to the sum; with the last push of a group apply the mean and begin the next."""
        total = extras[0]
        np.add(total, push, out=total)
        if n_held + 1 < self.updates_per_apply:
            return n_held + 1
        np.multiply(total, np.float32(1.0 / self.updates_per_apply), out=total)
        np.add(center, total, out=center)
        total.fill(0.0)
        return 0

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/updates_per_apply: that many steps move the center like one."""
        return 1.0 / self.updates_per_apply


STRATEGY = Softsync()
