"""Every strategy with ``n_workers=1``: the center is a copy of the worker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.exchange.strategies.base import ExchangeContext, Strategy
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class SingleWorker(Strategy):
    """``center' = local``; the worker keeps its parameters, bit for bit: a run is Caffe's run.

    The parameters do not depend on the number of exchanges.
    """

    name = "single_worker"
    pulls = "never"
    most_exchange_share = 0.02

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Push and keep ``local`` unchanged."""
        np.copyto(push, local)
        np.copyto(new_local, local)

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Take the worker's parameters."""
        np.copyto(center, push)
        return 0

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1: a run is plain SGD."""
        return 1.0


STRATEGY = SingleWorker()
