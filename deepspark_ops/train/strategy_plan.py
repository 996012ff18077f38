"""How workers and center meet in a run: what the fields of a TrainConfig that bear on it amount to together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deepspark_ops.config import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies import (
    Option,
    Strategy,
    check_moving_rate,
    configure,
    find_strategy,
    strategy_names,
)
from deepspark_ops.exchange.strategy_options import FIELD, parse_strategy_options


@dataclass(frozen=True)
class StrategyPlan:
    """The strategy of a run with everything that belongs to it.

    Attributes:
        strategy: As chosen, options set.
        running: What runs with the run's number of workers.
        options: The chosen one's own options.
        comm_period: tau.
        moving_rate: alpha as given; None for the strategy's default.
        warnings: What the user should think about, one line each.
    """

    strategy: Strategy
    running: Strategy
    options: Mapping[str, Option]
    comm_period: Literal["auto"] | int
    moving_rate: float | None
    warnings: tuple[str, ...]


def plan_strategy(config: TrainConfig) -> StrategyPlan:
    """Return the strategy of a run.

    Raises:
        ConfigError: An unknown strategy or option, a value that is not allowed, or fields that contradict each other.
    """
    found = parse_strategy_options(config.strategy, config.strategy_options, n_workers=config.n_workers)
    strategy = configure(config.strategy, found.options)
    running = strategy.for_workers(config.n_workers)
    if config.overlap and not strategy.has_moving_rate:
        elastic = ", ".join(name for name in strategy_names() if find_strategy(name).has_moving_rate)
        msg = (
            f"overlap=true with strategy={strategy.name}: its workers go on from what the exchange gives them and have"
            f" to wait for it; allowed with: {elastic}"
        )
        raise ConfigError(msg)
    period, moving_rate = config.comm_period, config.moving_rate
    if found.comm_period is not None:
        _refuse_both("comm_period", period if period != "auto" else None, "period", found.comm_period)
        period = found.comm_period
    if found.moving_rate is not None:
        _refuse_both("moving_rate", moving_rate, "moving_rate", found.moving_rate)
        moving_rate = found.moving_rate
    if running.requires.comm_period_one:
        if period not in ("auto", 1):
            msg = f"comm_period={period}: strategy {running.name} exchanges after every minibatch; allowed: 1"
            raise ConfigError(msg)
        period = 1
    _, warnings = check_moving_rate(strategy, moving_rate, config.n_workers)
    return StrategyPlan(strategy, running, found.options, period, moving_rate, tuple(warnings))


def _refuse_both(name: str, given: float | None, other: str, other_value: float) -> None:
    if given is not None and given != other_value:
        msg = f"{name}={given:g} and {other}: {other_value:g} in {FIELD}: they mean the same; give one"
        raise ConfigError(msg)
