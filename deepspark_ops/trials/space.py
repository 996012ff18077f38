"""The space of a comparison: lists and ranges of values, and combinations by grid or at random."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

from deepspark_ops.config.compare import CompareConfig, Range, Value

MAX_TRIALS: Final = 64
LISTS: Final = {
    "solver": "solvers",
    "strategy": "strategies",
    "n_workers": "workers",
    "comm_period": "comm_periods",
    "base_lr": "base_lrs",
}
"""Option of a training -> list of the comparison; ``base_lr`` is a field of the solver."""
_LOGARITHMIC: Final = 10.0
"""A range whose end is this many times its start is searched on a logarithmic scale."""
_DIGITS: Final = 3
_DRAWS_PER_TRIAL: Final = 100
Values = dict[str, Value]
Axis = tuple[Value, ...] | Range
Space = Mapping[str, Axis]


def space_of(config: CompareConfig) -> dict[str, Axis]:
    """Return the values of each option with a list or a range, in the order of a trial's name."""
    lists: dict[str, Sequence[Value | Range]] = {
        "solver": tuple(map(str, config.solvers)),
        "strategy": config.strategies,
        "n_workers": config.workers,
        "comm_period": config.comm_periods,
        "base_lr": config.base_lrs,
        **dict(config.solver_fields),
    }
    return {name: _axis(values) for name, values in lists.items() if values}


def _axis(values: Sequence[Value | Range]) -> Axis:
    if isinstance(values[0], Range):
        return values[0]
    return tuple(dict.fromkeys(value for value in values if not isinstance(value, Range)))


def grid(space: Space) -> list[Values]:
    """Return all combinations of the lists; the last list varies first."""
    lists = {name: axis for name, axis in space.items() if not isinstance(axis, Range)}
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def random_draws(space: Space, n_trials: int, seed: int) -> list[Values]:
    """Return at most ``n_trials`` different combinations, each drawn uniformly; see ``Range`` for ranges."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    draws: list[Values] = []
    for _ in range(n_trials * _DRAWS_PER_TRIAL):
        values = {name: _drawn(axis, generator) for name, axis in space.items()}
        if values not in draws:
            draws.append(values)
        if len(draws) == n_trials:
            break
    return draws


def _drawn(axis: Axis, generator: random.Random) -> Value:
    if not isinstance(axis, Range):
        return generator.choice(axis)
    if isinstance(axis.low, int) and isinstance(axis.high, int) and not is_logarithmic(axis):
        return generator.randint(axis.low, axis.high)
    if not is_logarithmic(axis):
        return in_range(generator.uniform(axis.low, axis.high), axis)
    return in_range(math.exp(generator.uniform(math.log(axis.low), math.log(axis.high))), axis)


def is_logarithmic(axis: Range) -> bool:
    """Return whether a range is searched on a logarithmic scale.

    Example:
        >>> is_logarithmic(Range(0.001, 0.1)), is_logarithmic(Range(0.8, 0.95))
        (True, False)
    """
    return axis.low > 0 and axis.high >= _LOGARITHMIC * axis.low


def in_range(number: float, axis: Range) -> Value:
    """Return a number with few digits inside the range; an integer for a range of integers."""
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return min(max(round(number), axis.low), axis.high)
    return min(max(float(f"{number:.{_DIGITS}g}"), float(axis.low)), float(axis.high))
