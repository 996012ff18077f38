"""n-softsync: the center moves once for several pushes; workers do not wait."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.strategies.shared_rules import GatheredMovements
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class Softsync(GatheredMovements):
    """The server gathers movements and applies several together, each divided by the number of workers.

    Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning" (2015), section 2, protocol
    n-softsync, with workers' movements in place of gradients::

        sum    += local - start
        every ``updates_per_apply`` pushes:  center' = center + sum / max(updates_per_apply, p);  sum = 0
        local'  = center, after the own push

    The paper divides the rate by the mean staleness, p / updates_per_apply groups. Here the movement is divided, also
    for movements of several steps: with undivided movements, four workers overshot the movements of others, and LeNet
    diverged.

    At the end of the run the incomplete group is applied in the same way, with its number of pushes.

    Every exchange pushes every chunk once, so each chunk counts its own pushes. The solver's history stays with the
    worker. ``comm_period: auto`` takes at least 10, as in ``downpour``.

    Attributes:
        updates_per_apply: Pushes that move the center together.
    """

    name = "softsync"
    round = "pushes"
    pulls = "after"
    least_auto_period = 10
    saved_vectors = (0,)  # the sum: the steps of its pushes are acknowledged

    updates_per_apply: int = 2

    def __post_init__(self) -> None:
        """Refuse groups without a push.

        Raises:
            ConfigError: Below 1.
        """
        if self.updates_per_apply < 1:
            msg = f"updates_per_apply={self.updates_per_apply}: must be at least 1"
            raise ConfigError(msg)

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Add to the sum; with the last push of a group, apply the mean and clear the sum."""
        n_held = super().server_chunk(center, extras, push, context, n_held)
        if n_held < self.updates_per_apply:
            return n_held
        self.move_by_share(center, extras[0], max(n_held, context.n_workers))
        return 0

    def apply_rest(self, center: Vector, extras: tuple[Vector, ...], n_held: int, n_workers: int) -> None:
        """Apply the incomplete group at the end of the run, as ``server_chunk`` applies a complete group."""
        self.move_by_share(center, extras[0], max(n_held, n_workers))

    def count_unfinished(self, extras: tuple[Vector, ...], n_held: int) -> int:
        """Count the push; a group that the push completed may be in the center, and is not applied a second time."""
        if n_held + 1 < self.updates_per_apply:
            return n_held + 1
        extras[0].fill(0.0)
        return 0

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1 over the divisor: so many steps move the center like one step."""
        return 1.0 / max(self.updates_per_apply, n_workers)


STRATEGY = Softsync()
