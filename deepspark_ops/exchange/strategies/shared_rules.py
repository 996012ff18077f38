"""What several strategies have in common; none of these is a strategy by itself."""

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
    """Return it as an array without axes, read only: numpy takes one in half the time of a scalar made afresh."""
    scalar = np.array(value, np.float32)
    scalar.flags.writeable = False
    return scalar


@dataclass(frozen=True)
class Additive(Strategy):
    """The center adds what is pushed, at once: ``center' = center + push``."""

    invariant = "pushes_add_up"

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Add the push."""
        np.add(center, push, out=center)
        return 0


@dataclass(frozen=True)
class Elastic(Additive):
    """Worker and center move towards each other by ``moving_rate`` times their difference."""

    unit = "weights"
    has_moving_rate = True

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/(p+1): a step moves one of the p+1 points whose mean trains."""
        return 1.0 / (n_workers + 1)

    def default_moving_rate(self, n_workers: int) -> float:
        """Return 0.45 with two workers, 0.3 with three to eight, and 2.4/p with more.

        EASGD's beta = p alpha = 0.9 is for a center that hears all workers at once. Here it hears one at a time, and
        each exchange is stable below 1: with 0.9/p and eight workers cifar10_quick lost 3 points to 0.3, since workers
        and center were too far apart. From sixteen on 0.3 lets the center follow single workers
        (docs/evidence/strategies.md).
        """
        return min(0.45, max(BETA / n_workers, min(0.3, 2.4 / n_workers)))

    def alpha(self, context: ExchangeContext) -> float:
        """Return the moving rate of one exchange."""
        return context.moving_rate

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
    """The server adds up what is pushed, and moves the center by what several pushes come to."""

    lock = "striped"

    @property
    def server_vectors(self) -> int:
        """One: the sum of pushes."""
        return 1

    def count_unfinished(self, extras: tuple[Vector, ...], n_held: int) -> int:
        """Count it: a sum that is divided by one too many moves the center too little, the other way too far."""
        return n_held + 1

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Add to the sum."""
        np.add(extras[0], push, out=extras[0])
        return n_held + 1


@dataclass(frozen=True)
class GatheredMovements(Gathered):
    """Workers push their movement, ``local - start``, ``start`` being what they began with."""

    unit = "delta"
    keeps_start = True

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``push = local - start``; the center is read afterwards."""
        np.subtract(local, start, out=push)

    def move_by_share(self, center: Vector, total: Vector, divisor: int) -> None:
        """Move the center by ``total / divisor`` and begin a new sum."""
        scale(total, 1.0 / divisor)
        np.add(center, total, out=center)
        total.fill(0.0)


@dataclass(frozen=True)
class GatheredGradients(Gathered):
    """Workers push their gradients after every minibatch or several, wait for each other, and take the center."""

    unit = "gradient"
    round = "all"
    pulls = "after_round"

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Push the gradient, which ``local`` holds instead of the parameters, as it is."""
        np.copyto(push, local)


def refuse_diverging_step(name: str, momentum: float, rate: float) -> None:
    """Refuse options ``<name>_momentum`` and ``<name>_rate`` of a step on the center that diverges.

    Raises:
        ConfigError: Names the option.
    """
    if not 0.0 <= momentum < 1.0:
        msg = f"{name}_momentum={momentum:g}: must be in [0, 1)"
        raise ConfigError(msg)
    if not 0.0 < rate <= 2.0:
        msg = f"{name}_rate={rate:g}: must be in (0, 2]"
        raise ConfigError(msg)
