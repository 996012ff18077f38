"""A strategy's own options as a user writes them: text in, typed options out."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import Option, configure, find_strategy
from deepspark_ops.exchange.strategies.deepspark_param import parse_deepspark_param
from deepspark_ops.exchange.strategies.option_text import TextField, read_fields

FIELD = "strategy_options"
"""What errors call the text: the user's name for it."""
_BOOLEANS = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a word"}


@dataclass(frozen=True)
class StrategyOptions:
    """What a text says.

    Attributes:
        options: For ``configure``.
        comm_period: tau, if the text decides it (DeepSpark's ``period``).
        moving_rate: alpha, likewise.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    comm_period: int | None = None
    moving_rate: float | None = None


def parse_strategy_options(name: str, text: str, *, n_workers: int) -> StrategyOptions:
    """Read ``option: value`` text for a strategy.

    A text for ``deepspark`` that has ``period`` or ``moving_rate`` is DeepSpark's own parameter file, whose steps count
    minibatches of one worker; without them its steps count exchanges, as the strategy's options do.

    Args:
        name: The strategy's.
        text: Options; empty for none.
        n_workers: p.

    Raises:
        ConfigError: Unknown strategy or option, or a value that is not allowed.

    Example:
        >>> parse_strategy_options("local_sgd", "block_momentum: 0.5", n_workers=2).options
        {'block_momentum': 0.5}
    """
    strategy = find_strategy(name)
    fields = read_fields(text, FIELD)
    if strategy.name == "deepspark" and {"period", "moving_rate"} & fields.keys():
        param = parse_deepspark_param(text, n_workers=n_workers, path=FIELD)
        found = StrategyOptions(param.options, param.comm_period, param.moving_rate)
    else:
        known = {item.name: type(getattr(strategy, item.name)) for item in dataclasses.fields(strategy)}
        found = StrategyOptions({key: _value(strategy.name, key, known, text) for key, text in fields.items()})
    try:
        configure(name, found.options)
    except ConfigError as error:
        msg = f"{FIELD}: {error}"
        raise ConfigError(msg) from error
    return found


def _value(strategy: str, name: str, known: Mapping[str, type], found: TextField) -> Option:
    kind = known.get(name)
    if kind is None:
        allowed = ", ".join(known) or f"none, {strategy} has no options of its own"
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        msg = f'{found.where}: option "{name}" of strategy {strategy} is unknown; allowed: {allowed}{hint}'
        raise ConfigError(msg)
    try:
        return _BOOLEANS[found.value.lower()] if kind is bool else kind(found.value)
    except (KeyError, ValueError) as error:
        msg = f'{found.where}: {name} is "{found.value}"; expected {_KINDS[kind]}'
        raise ConfigError(msg) from error
