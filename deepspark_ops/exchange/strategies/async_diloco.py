"""DiLoCo without waiting: the center moves at every push, and its Nesterov momentum once for several pushes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.strategies.shared_rules import GatheredMovements, refuse_diverging_step, scale
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class AsyncDiloco(GatheredMovements):
    """Asynchronous local SGD with delayed Nesterov momentum.

    Liu, Chhaparia, Douillard, Kale, Rusu, Shen, Szlam and Ranzato, "Asynchronous Local-SGD Training for Language
    Modeling" (2024, arXiv 2401.09135): the delayed Nesterov update with momentum activation c = 0, and dynamic local
    updates. Movements replace outer gradients, which have the opposite sign. N is ``delay``::

        move     = local - start                                    of comm_period local steps
        sum      = sum + move
        center'  = center + outer_rate * move / N                   at each push, but every N-th:
        velocity = outer_momentum * velocity + sum / N;  sum = 0
        center'  = center + outer_rate * (outer_momentum * velocity + move / N)
        local'   = center', after the own push

    Over N pushes the result is the Nesterov step of ``diloco`` by their mean. Momentum at every push would add to the
    momentum that late movements of others have already (Mitliagkas et al. 2016).

    With ``even_pace`` the server grants a slower worker fewer minibatches between its exchanges, by its measured speed
    against the fastest worker. So all workers push about equally often, and no push is much older than the others.

    The solver's history stays with the worker. ``comm_period: auto`` takes at least 10, as in ``diloco``. The paper's
    momentum of 0.9 is for hundreds of local steps of AdamW. With 10 steps of SGD and 0.9 the perceptron lost 26 and 33
    points with four and eight workers, and LeNet learned nothing. With 0.6 they lost 3 and 4 and diverged, with 0.2 a
    point each (docs/evidence/strategies.md).

    Attributes:
        outer_rate: Factor on the outer steps.
        outer_momentum: 0: none, and with ``outer_rate: 1`` it is ``downpour``.
        delay: Pushes from one step of the momentum to the next; 0: as many as there are workers.
        even_pace: Whether slower workers take fewer minibatches between exchanges.
    """

    name = "async_diloco"
    pulls = "after"
    least_auto_period = 10
    server_vectors = 2  # the sum of pushes since the last step of the momentum, and the outer velocity
    saved_vectors = (0, 1)  # the center has the pushes of the sum already, so no worker repeats the pushes

    outer_rate: float = 0.7
    outer_momentum: float = 0.2
    delay: int = 0
    even_pace: bool = True

    def __post_init__(self) -> None:
        """Refuse a momentum or rate that diverges, and a negative delay.

        Raises:
            ConfigError: Names the option.
        """
        refuse_diverging_step("outer", self.outer_momentum, self.outer_rate)
        if self.delay < 0:
            msg = f"delay={self.delay}: must not be negative; 0 means n_workers"
            raise ConfigError(msg)

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Move the center by the push; with the last push of a delay, by the momentum too."""
        total, velocity = extras
        delay = self._delay(context.n_workers)
        n_held = super().server_chunk(center, extras, push, context, n_held)
        step = push.copy()
        scale(step, 1.0 / delay)
        if n_held >= delay:
            mean = total.copy()
            scale(mean, 1.0 / delay)
            scale(velocity, self.outer_momentum)
            np.add(velocity, mean, out=velocity)
            np.copyto(mean, velocity)
            scale(mean, self.outer_momentum)
            np.add(step, mean, out=step)
            total.fill(0.0)
            n_held = 0
        scale(step, self.outer_rate)
        np.add(center, step, out=center)
        return n_held

    def count_unfinished(self, extras: tuple[Vector, ...], n_held: int) -> int:
        """Count the push: the sum is divided by the delay, with or without the push.

        After the last push of a delay, the next push moves the momentum by the present sum.
        """
        return n_held + 1

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/N, times the sum of the outer steps' factors."""
        return min(1.0, self.outer_rate / (1.0 - self.outer_momentum) / self._delay(n_workers))

    def _delay(self, n_workers: int) -> int:
        return self.delay or n_workers


STRATEGY = AsyncDiloco()
