"""DeepSpark's EASGD: a decaying moving rate, and a separate decaying factor for the center."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.strategies.shared_rules import Elastic


@dataclass(frozen=True)
class DeepSpark(Elastic):
    """Elastic averaging with decays.

    Kim, Park, Jang and Yoon, "DeepSpark: A Spark-Based Distributed Deep Learning Framework for Commodity Clusters"
    (2016), and its code (``DistAsyncEASGDSolver``, ``ParameterEASGDServer``)::

        alpha  = moving_rate   * decay_rate        ** min(own // decay_step, decay_limit)
        factor = server_factor * factor_decay_rate ** min(total // factor_decay_step, factor_decay_limit)
        e       = alpha * (local - center)
        local'  = local  - e
        center' = center + factor * e

    Steps count exchanges: the worker's own exchanges for alpha, all workers' exchanges for the factor. DeepSpark's file
    counts minibatches of one worker, so ``strategies.options`` divides by the file's ``period``, and multiplies the
    server's steps by p. DeepSpark's server also decayed alpha by the server's count, and blended with a center read
    later. Here one ``e`` serves both sides: with a factor of 1 the sum of workers and center stays constant. A limit of
    0 means no decay, below 0 no limit, as in DeepSpark's defaults.

    Attributes:
        decay_rate: Factor on alpha at each decay.
        decay_step: Own exchanges between decays; 0: never.
        decay_limit: Most decays.
        server_factor: How far the center moves, in elastic differences.
        factor_decay_rate: Factor on ``server_factor`` at each decay.
        factor_decay_step: Exchanges of all workers between decays; 0: never.
        factor_decay_limit: Most decays.
        loss_budget: ``comm_period`` is the first period only. Later ones end when the loss summed since the last
            exchange exceeds that of the first: as the loss falls, workers exchange less often.
    """

    name = "deepspark"

    decay_rate: float = 1.0
    decay_step: int = 0
    decay_limit: int = -1
    server_factor: float = 1.0
    factor_decay_rate: float = 1.0
    factor_decay_step: int = 0
    factor_decay_limit: int = -1
    loss_budget: bool = False

    def __post_init__(self) -> None:
        """Refuse rates outside (0, 1] and negative steps.

        Raises:
            ConfigError: Names the option.
        """
        for name in ("decay_rate", "server_factor", "factor_decay_rate"):
            if not 0.0 < getattr(self, name) <= 1.0:
                msg = f"{name}={getattr(self, name):g}: must be in (0, 1]"
                raise ConfigError(msg)
        for name in ("decay_step", "factor_decay_step"):
            if getattr(self, name) < 0:
                msg = f"{name}={getattr(self, name)}: must not be negative; 0 means never"
                raise ConfigError(msg)

    def alpha(self, context: ExchangeContext) -> float:
        """Return the moving rate after the worker's decays so far."""
        n_decays = _decays(context.ended_before, self.decay_step, self.decay_limit)
        return float(super().alpha(context) * self.decay_rate**n_decays)

    def center_share(self, context: ExchangeContext) -> float:
        """Return the server factor after its decays so far."""
        n_decays = _decays(context.total, self.factor_decay_step, self.factor_decay_limit)
        return float(self.server_factor * self.factor_decay_rate**n_decays)


def _decays(count: int, step: int, limit: int) -> int:
    """Return the number of decays after ``count`` exchanges."""
    if step == 0 or limit == 0:
        return 0
    return count // step if limit < 0 else min(count // step, limit)


STRATEGY = DeepSpark()
