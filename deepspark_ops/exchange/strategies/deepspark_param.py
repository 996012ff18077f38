"""DeepSpark's parameter file (``period: 50 moving_rate: 0.1 ...``), accepted as it is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import Option
from deepspark_ops.exchange.strategies.option_text import read_fields

_INTEGERS = ("period", "decay_step", "decay_limit", "factor_decay_step", "factor_decay_limit")
_BOOLEANS = {"true": True, "false": False}
_FLOATS = ("moving_rate", "decay_rate", "server_factor", "factor_decay_rate")
_REQUIRED = ("period", "moving_rate")
_OURS = "loss_budget"
"""Not in DeepSpark's own files, but of the same strategy."""


@dataclass(frozen=True)
class DeepSparkParam:
    """What the file says, in this program's words.

    Attributes:
        comm_period: tau, minibatches between a worker's exchanges.
        moving_rate: alpha.
        options: Options of the strategy ``deepspark``; its steps count exchanges.
    """

    comm_period: int
    moving_rate: float
    options: Mapping[str, Option]


def parse_deepspark_param(text: str, *, n_workers: int, path: str = "<text>") -> DeepSparkParam:
    """Read a DeepSpark parameter file.

    Its steps count minibatches of one worker. DeepSpark divides them by the period, rounding down, to get exchanges,
    and multiplies the server's by the number of workers (``DistAsyncEASGDSolver``, ``ParameterEASGDServer``).

    Args:
        text: Protobuf text of one ``DeepSparkParam``.
        n_workers: p.
        path: Named in errors.

    Raises:
        ConfigError: Unknown, repeated, missing or unreadable field; with the line.

    Example:
        >>> parse_deepspark_param("period: 50 moving_rate: 0.1 decay_step: 1000 decay_rate: 0.5", n_workers=4)
        DeepSparkParam(comm_period=50, moving_rate=0.1, options={'decay_step': 20, 'decay_rate': 0.5})
    """
    found = _read_fields(text, path)
    for name in _REQUIRED:
        if name not in found:
            msg = f'{path}: "{name}" is missing; DeepSpark requires {", ".join(_REQUIRED)}'
            raise ConfigError(msg)
    period = int(found.pop("period"))
    if period < 1:
        msg = f"{path}: period={period}: must be at least 1"
        raise ConfigError(msg)
    moving_rate = float(found.pop("moving_rate"))
    for name, per_worker in (("decay_step", 1), ("factor_decay_step", n_workers)):
        if name in found:
            found[name] = max(0, int(found[name]) * per_worker // period)
    return DeepSparkParam(period, moving_rate, found)


def _read_fields(text: str, path: str) -> dict[str, Option]:
    return {name: _read_value(name, *field) for name, field in read_fields(text, path).items()}


def _read_value(name: str, value: str, where: str) -> Option:
    if name == _OURS and value in _BOOLEANS:
        return _BOOLEANS[value]
    kind = int if name in _INTEGERS else float
    if name not in _INTEGERS and name not in _FLOATS:
        known = (*_REQUIRED, *sorted({*_INTEGERS, *_FLOATS, _OURS} - set(_REQUIRED)))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        msg = f'{where}: unknown field "{name}"; allowed: {", ".join(known)}{hint}'
        raise ConfigError(msg)
    try:
        return kind(value)
    except ValueError as error:
        msg = f'{where}: {name} is "{value}"; expected {"an integer" if kind is int else "a number"}'
        raise ConfigError(msg) from error
