"""Rules that several strategies share; no rule here is a strategy by itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import BETA, ExchangeContext, Strategy
from deepspark_ops.param_vector import Vector


def scale(values: Vector, factor: float) -> None:
    """Multiply by ``factor``, rounded to float32, in place."""
    np.multiply(values, _float32_scalar(factor), out=values)


@lru_cache(maxsize=64)
def _float32_scalar(value: float) -> npt.NDArray[np.float32]:
    """Return a read-only array without axes: numpy multiplies by such an array in half the time of a new scalar."""
    scalar = np.array(value, np.float32)
    scalar.flags.writeable = False
    return scalar


@dataclass(frozen=True)
class Additive(Strategy):
    """The center adds each push at once: ``center' = center + push``."""

    pushes_add_up = True

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Add the push."""
        np.add(center, push, out=center)
        return 0


@dataclass(frozen=True)
class Elastic(Additive):
    """Worker and center move towards each other by ``moving_rate`` times their difference."""

    has_moving_rate = True

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/(p+1): a step moves one of the p+1 points, and their mean trains."""
        return 1.0 / (n_workers + 1)

    def default_moving_rate(self, n_workers: int) -> float:
        """Return 0.45 with two workers, 0.3 with three to eight, and 2.4/p with more.

        EASGD's beta = p alpha = 0.9 is for a center that reads all workers at once. This center reads one worker at a
        time, and each exchange is stable below 1. With 0.9/p and eight workers cifar10_quick lost 3 points against 0.3,
        because workers and center were too far apart. From sixteen workers on, a center with 0.3 follows single workers
        (docs/evidence/strategies.md).
        """
        return min(0.45, max(BETA / n_workers, min(0.3, 2.4 / n_workers)))

    def alpha(self, context: ExchangeContext) -> float:
        """Return the moving rate of one exchange."""
        return context.moving_rate or self.default_moving_rate(context.n_workers)

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``e = alpha (local - center)``, ``new_local = local - e`` and ``push = center_share e``."""
        np.subtract(local, center, out=push)
        scale(push, self.alpha(context))
        np.subtract(local, push, out=new_local)
        share = self.center_share(context)
        if share != 1.0:
            scale(push, share)


@dataclass(frozen=True)
class Gathered(Strategy):
    """The server adds up pushes, and moves the center by the result of several pushes."""

    lock = "striped"

    @property
    def server_vectors(self) -> int:
        """1: the sum of pushes."""
        return 1

    def count_unfinished(self, extras: tuple[Vector, ...], n_held: int) -> int:
        """Return the count with the push: a divisor that is too large moves the center too little, not too far."""
        return n_held + 1

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Add to the sum."""
        np.add(extras[0], push, out=extras[0])
        return n_held + 1


@dataclass(frozen=True)
class GatheredMovements(Gathered):
    """Workers push their movement ``local - start``, from the start of the period."""

    keeps_start = True

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``push = local - start``; the center is read afterwards."""
        np.subtract(local, start, out=push)

    def move_by_share(self, center: Vector, total: Vector, divisor: int) -> None:
        """Move the center by ``total / divisor``, and clear the sum."""
        scale(total, 1.0 / divisor)
        np.add(center, total, out=center)
        total.fill(0.0)


@dataclass(frozen=True)
class GatheredGradients(Gathered):
    """Workers push gradients after every minibatch or several, wait for each other, and read the center."""

    round = "all"
    pulls = "after_round"

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Push the gradient, which ``local`` holds in place of the parameters."""
        np.copyto(push, local)


def refuse_diverging_step(name: str, momentum: float, rate: float) -> None:
    """Refuse values of ``<name>_momentum`` and ``<name>_rate`` with which a step on the center diverges.

    Raises:
        ConfigError: Names the option.
    """
    if not 0.0 <= momentum < 1.0:
        msg = f"{name}_momentum={momentum:g}: must be in [0, 1)"
        raise ConfigError(msg)
    if not 0.0 < rate <= 2.0:
        msg = f"{name}_rate={rate:g}: must be in (0, 2]"
        raise ConfigError(msg)
