"""The exchange of a run's workers: strategy, tau and alpha by the fields of a TrainConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deepspark_ops.config.shared_options.schedules import schedule_entries
from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import (
    SINGLE_WORKER,
    Option,
    Strategy,
    check_moving_rate,
    configure,
    find_strategy,
    strategy_names,
)
from deepspark_ops.exchange.strategies.choice import AUTO, choose_strategy
from deepspark_ops.exchange.strategies.options import FIELD, StrategyOptions, parse_strategy_options

Period = Literal["auto"] | int | tuple[tuple[int, float], ...]
"""tau; a tuple has the pairs (clock, tau) of a schedule."""


@dataclass(frozen=True)
class StrategyPlan:
    """The strategy of a run with all settings.

    Attributes:
        strategy: The chosen strategy with options.
        running: The strategy that runs with the run's number of workers.
        options: The chosen strategy's own options.
        comm_period: tau.
        moving_rate: The user's alpha, or the first alpha of a schedule; None for the strategy's default.
        moving_rates: (clock, alpha) of a schedule; empty without a schedule.
        warnings: Lines for the user.
    """

    strategy: Strategy
    running: Strategy
    options: Mapping[str, Option]
    comm_period: Period
    moving_rate: float | None
    moving_rates: tuple[tuple[int, float], ...]
    warnings: tuple[str, ...]


def plan_strategy(config: TrainConfig) -> StrategyPlan:
    """Return the strategy of a run.

    Raises:
        ConfigError: An unknown strategy or option, a value that is not allowed, or fields that contradict each other.
    """
    config, _ = with_strategy(config)
    parsed = parse_strategy_options(config.strategy, config.strategy_options, n_workers=config.n_workers)
    strategy = configure(config.strategy, parsed.options)
    running = strategy.for_workers(config.n_workers)
    _check_range(config, strategy, parsed)
    check_overlap(strategy, overlap=config.overlap)
    period = _period_of(config, running, parsed.comm_period)
    moving_rates = schedule_entries(config.moving_rate) if isinstance(config.moving_rate, str) else ()
    moving_rate = None if isinstance(config.moving_rate, str) else config.moving_rate
    if parsed.moving_rate is not None:
        _refuse_both("moving_rate", config.moving_rate, "moving_rate", parsed.moving_rate)
        moving_rate = parsed.moving_rate
    rates = [rate for _, rate in moving_rates] if moving_rates else [moving_rate]
    warnings = [text for rate in rates for text in check_moving_rate(strategy, rate, config.n_workers)]
    return StrategyPlan(strategy, running, parsed.options, period, rates[0], moving_rates, tuple(warnings))


def check_overlap(strategy: Strategy, *, overlap: bool) -> None:
    """Refuse an exchange during steps where workers go on from the result of the exchange.

    Raises:
        ConfigError: Names the strategies that allow it.
    """
    if overlap and not strategy.has_moving_rate:
        elastic = ", ".join(name for name in strategy_names() if find_strategy(name).has_moving_rate)
        msg = (
            f"overlap=true with strategy={strategy.name}: its workers go on from what the exchange gives them and have"
            f" to wait for it; allowed with: {elastic}"
        )
        raise ConfigError(msg)


def training_identity(config: TrainConfig) -> tuple[object, ...]:
    """Return the identity of a training: equal values train the same weights by the same exchanges.

    With a single worker every strategy but ``lbfgs`` is ``single_worker``, so name, options and alpha do not count.
    ``auto`` equals a named strategy if ``auto`` takes this strategy both on a single host and on a cluster.

    Raises:
        ConfigError: As ``plan_strategy``.
    """
    plan = plan_strategy(config)
    on_cluster = plan_strategy(config.model_copy(update={"master": "spark://host:7077"}))
    resolved_fields = {"solver", "strategy", "strategy_options", "comm_period", "moving_rate", "run_dir"}
    other_fields = config.model_dump(mode="json", exclude=resolved_fields)
    rates = None if plan.running.name == SINGLE_WORKER else (plan.moving_rate, plan.moving_rates)
    return (config.solver.resolve(), other_fields, plan.running, on_cluster.running, plan.comm_period, rates)


def with_strategy(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return the config with a strategy in place of ``auto``, and the reason; unchanged for a named strategy.

    Workers on a single host count as equally fast, workers of a cluster do not.

    Raises:
        ConfigError: Options of a strategy without the strategy's name.
    """
    if config.strategy != AUTO:
        find_strategy(config.strategy, other_choices=(AUTO,))
        return config, ""
    if config.strategy_options:
        msg = f"strategy=auto and {FIELD}={config.strategy_options!r}: they are a strategy's own; name the strategy"
        raise ConfigError(msg)
    if config.overlap or config.comm_period not in ("auto", 1):
        option = "overlap" if config.overlap else f"comm_period={config.comm_period}"
        return _taking(config, "easgd"), f"strategy easgd: with {option}, which not every one takes"
    chosen = choose_strategy(config.n_workers, uneven=not config.master.startswith("local"))
    return _taking(config, chosen.name), chosen.reason


def _taking(config: TrainConfig, strategy: str) -> TrainConfig:
    return config.model_copy(update={"strategy": strategy})


def _period_of(config: TrainConfig, running: Strategy, in_options: int | None) -> Period:
    """Return tau of a run from the strategy's own options or the config, if the strategy can use this tau."""
    setting = config.comm_period
    period: Period = "auto"
    if isinstance(setting, int):
        period = setting
    elif setting != "auto":
        period = schedule_entries(setting)
    if in_options is not None:
        _refuse_both("comm_period", None if period == "auto" else setting, "period", in_options)
        period = in_options
    if running.comm_period_one:
        if period not in ("auto", 1):
            msg = f"comm_period={setting}: strategy {running.name} exchanges after every minibatch; allowed: 1"
            raise ConfigError(msg)
        return 1
    if running.loss_budget and not isinstance(period, int):
        msg = f"comm_period={setting}: loss_budget counts from a first period of fixed length; give a number"
        raise ConfigError(msg)
    if running.repeats_data and isinstance(period, tuple):
        msg = f"comm_period={setting}: strategy {running.name} keeps its minibatches; give a number or auto"
        raise ConfigError(msg)
    return period


def _check_range(config: TrainConfig, strategy: Strategy, parsed: StrategyOptions) -> None:
    """Refuse a number of workers that changes, where a setting is divided or multiplied by the number."""
    workers, why = config.n_workers, ""
    if strategy.repeats_data:
        why = "each worker keeps its share of the training set for the whole run"
    elif parsed.comm_period is not None and parsed.options.get("factor_decay_step"):
        why = "factor_decay_step of the parameter file counts minibatches of each worker"
    if why and isinstance(workers, WorkerRange):
        msg = f"n_workers={workers.text} with strategy={strategy.name}: {why}; give a number, or another strategy"
        raise ConfigError(msg)


def _refuse_both(name: str, value: float | str | None, other: str, other_value: float) -> None:
    if value is not None and value != other_value:
        msg = f"{name}={value} and {other}: {other_value:g} in {FIELD}: they mean the same; give one"
        raise ConfigError(msg)
