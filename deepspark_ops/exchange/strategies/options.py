"""A strategy's options as a user writes them: ``name: value`` text in, typed options out."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import Option, configure, find_strategy, strategy_names

FIELD = "strategy_options"
"""The user's name of the text, for errors."""
_FILE_FIELDS: Mapping[str, type] = {"period": int, "moving_rate": float}
"""Fields of DeepSpark's parameter file beside the options of the strategy ``deepspark``; the file requires both."""
_BOOLEANS = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a word"}
_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:\s*(?P<value>[^\s#,;]+)[,;]?|(?P<other>\S+))")


@dataclass(frozen=True)
class StrategyOptions:
    """The options of a text.

    Attributes:
        options: For ``configure``.
        comm_period: tau, if the text decides it (DeepSpark's ``period``).
        moving_rate: alpha, likewise.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    comm_period: int | None = None
    moving_rate: float | None = None


class TextField(NamedTuple):
    """One ``name: value``: the value as written, and ``path:line`` for errors."""

    value: str
    where: str


def parse_strategy_options(name: str, text: str, *, n_workers: int) -> StrategyOptions:
    """Read ``option: value`` text for a strategy.

    A text for ``deepspark`` with ``period`` or ``moving_rate`` is DeepSpark's parameter file, with steps in minibatches
    of one worker. Without these fields, steps count exchanges, like the strategy's options.

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
    kinds = {item.name: type(getattr(strategy, item.name)) for item in dataclasses.fields(strategy)}
    if strategy.name == "deepspark":
        kinds = {**_FILE_FIELDS, **kinds}
    options = {key: _value(strategy.name, key, kinds, text) for key, text in fields.items()}
    is_file = strategy.name == "deepspark" and not _FILE_FIELDS.keys().isdisjoint(options)
    parsed = _of_deepsparks_file(options, n_workers) if is_file else StrategyOptions(options)
    try:
        configure(name, parsed.options)
    except ConfigError as error:
        msg = f"{FIELD}: {error}"
        raise ConfigError(msg) from error
    return parsed


def read_fields(text: str, path: str) -> dict[str, TextField]:
    """Return name -> field, in the order of the text. ``#`` begins a comment, commas and semicolons are blanks.

    Args:
        text: Any number of fields a line.
        path: Named in errors.

    Raises:
        ConfigError: Something else than fields, or one given twice; with the line.

    Example:
        >>> read_fields("decay_rate: 0.5, decay_step: 3", "options")["decay_step"]
        TextField(value='3', where='options:1')
    """
    text_fields: dict[str, TextField] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}:{number}"
        for token in _TOKEN.finditer(line.split("#", 1)[0].rstrip()):
            if token["other"]:
                msg = f'{where}: "{token["other"]}" is not of the form "name: value"'
                raise ConfigError(msg)
            if token["name"] in text_fields:
                msg = f'{where}: "{token["name"]}" is given twice'
                raise ConfigError(msg)
            text_fields[token["name"]] = TextField(token["value"], where)
    return text_fields


def _value(strategy: str, name: str, kinds: Mapping[str, type], field: TextField) -> Option:
    kind = kinds.get(name)
    if kind is None:
        allowed = ", ".join(kinds) or f"none, {strategy} has no options of its own"
        nearest = difflib.get_close_matches(name, kinds, n=1)
        hint = f'; did you mean "{nearest[0]}"?' if nearest else ""
        if strategies := strategies_with(name):
            hint = f"; strategies with {name}: {', '.join(strategies)}"
        msg = f'{field.where}: option "{name}" of strategy {strategy} is unknown; allowed: {allowed}{hint}'
        raise ConfigError(msg)
    try:
        value: Option = _BOOLEANS[field.value.lower()] if kind is bool else kind(field.value)
    except (KeyError, ValueError) as error:
        msg = f'{field.where}: {name} is "{field.value}"; expected {_KINDS[kind]}'
        raise ConfigError(msg) from error
    return value


def strategies_with(option: str) -> list[str]:
    """Return the names of the strategies with an option."""
    names = strategy_names()
    return [name for name in names if any(item.name == option for item in dataclasses.fields(find_strategy(name)))]


def _of_deepsparks_file(values: dict[str, Option], n_workers: int) -> StrategyOptions:
    """Return the options of DeepSpark's parameter file.

    The file's steps count minibatches of one worker. DeepSpark divides the steps by the period, rounding down, to get
    exchanges, and multiplies the server's steps by the number of workers (``DistAsyncEASGDSolver``,
    ``ParameterEASGDServer``).

    Raises:
        ConfigError: A required field is missing, or the period is not a number of minibatches.
    """
    for name in _FILE_FIELDS:
        if name not in values:
            msg = f'{FIELD}: "{name}" is missing; DeepSpark requires {", ".join(_FILE_FIELDS)}'
            raise ConfigError(msg)
    options = {name: value for name, value in values.items() if name not in _FILE_FIELDS}
    period, moving_rate = int(values["period"]), float(values["moving_rate"])
    if period < 1:
        msg = f"{FIELD}: period={period}: must be at least 1"
        raise ConfigError(msg)
    for name, per_worker in (("decay_step", 1), ("factor_decay_step", n_workers)):
        if name in options:
            options[name] = max(0, int(options[name]) * per_worker // period)
    return StrategyOptions(options, period, moving_rate)
