"""Options of a comparison: lists of values for the trials."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from deepspark_ops.config.base import EXPERT, FORM, StageConfig

Value = str | int | float
"""Value of an option in a trial."""


@dataclass(frozen=True)
class Range:
    """A range of numbers, for a random search or Optuna.

    Attributes:
        low: Least value.
        high: Greatest value. A range of two integers has integers only.
    """

    low: int | float
    high: int | float

    def __str__(self) -> str:
        """Return the option's text."""
        return f"{self.low}..{self.high}"


_LIST: Final = [{"type": "string"}, {"type": "array"}]
"""Text of several lines in the form, which Airflow sends as a list of lines; programs may send a list."""


def _items(value: Any) -> Any:
    """Split a value, a text with commas or line breaks, or a list of such values."""
    parts = value if isinstance(value, list | tuple) else [value]
    items: list[Any] = []
    for part in parts:
        items += re.split(r"[,\n]", part) if isinstance(part, str) else [part]
    items = [part.strip() if isinstance(part, str) else part for part in items]
    return tuple(part for part in items if part != "")


def _number(text: str) -> int | float | None:
    """Return the finite number of a text; None for another text."""
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return number if math.isfinite(number) else None
    return None


def _number_or_range(item: Any) -> Any:
    """Return a number, or the range of ``LOW..HIGH``; other items as given."""
    if not isinstance(item, str):
        return item
    low_text, is_range, high_text = item.partition("..")
    low, high = _number(low_text), _number(high_text)
    if not is_range:
        return item if low is None else low
    if low is None or high is None or not low < high:
        msg = f"{item!r} is no range; a range is LOW..HIGH, e.g. 0.001..0.1"
        raise ValueError(msg)
    return Range(low, high)


def _numbers(value: Any) -> Any:
    """Return the items with numbers and ranges; a range is alone."""
    items = tuple(_number_or_range(item) for item in _items(value))
    if len(items) > 1 and any(isinstance(item, Range) for item in items):
        msg = "has a range and other values; give a single range, or values"
        raise ValueError(msg)
    return items


def _fields(value: Any) -> Any:
    """Return ``(field, values)`` of entries ``FIELD: VALUES``, in lines or with semicolons between them."""
    lines = re.split(r"[;\n]", value) if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        return value
    pairs = [line.partition(":") for line in lines if line.strip()]
    names = [name.strip() for name, _, _ in pairs]
    for name, _, values in pairs:
        if not re.fullmatch(r"\s*[a-z_]+\s*", name) or not values.strip() or names.count(name.strip()) > 1:
            msg = (
                f"{name.strip()!r}: a line is FIELD: VALUES, and a field has one line,"
                " e.g. 'weight_decay: 0.0005, 0.005'"
            )
            raise ValueError(msg)
    return tuple((name.strip(), _numbers(values)) for name, _, values in pairs)


def _field_lines(fields: tuple[tuple[str, tuple[Any, ...]], ...]) -> list[str]:
    return [f"{name}: {', '.join(map(str, values))}" for name, values in fields]


def _texts(value: Any) -> Any:
    return tuple(str(part) if isinstance(part, int) else part for part in _items(value))


_Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_items),
    WithJsonSchema({"anyOf": [{"type": "array"}, {"type": "string"}]}, mode="validation"),
]
_Periods = Annotated[tuple[str, ...], BeforeValidator(_texts), WithJsonSchema({"anyOf": _LIST}, mode="validation")]
_Counts = Annotated[
    tuple[Annotated[int, Field(ge=1, le=10_000)], ...],
    BeforeValidator(_items),
    WithJsonSchema({"anyOf": _LIST}, mode="validation"),
]
_Rates = Annotated[
    tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | Range, ...],
    BeforeValidator(_numbers),
    WithJsonSchema({"anyOf": _LIST}, mode="validation"),
]
_SolverFields = Annotated[
    tuple[tuple[str, tuple[Value | Range, ...]], ...],
    BeforeValidator(_fields),
    PlainSerializer(_field_lines),
    WithJsonSchema({"anyOf": _LIST}, mode="validation"),
]
_Files = Annotated[tuple[Path, ...], BeforeValidator(_items), WithJsonSchema({"anyOf": _LIST}, mode="validation")]
_ALL: Final = "search=grid trains all combinations of the lists"


class TrialLists(StageConfig):
    """Lists of values for the trials; an empty list uses the single value of a training."""

    strategies: _Words = Field(
        (),
        title="Strategies to compare",
        description=f"Strategies, with commas; {_ALL}, at most 64. Empty: the training's single value",
        json_schema_extra={**FORM, "one_of": "strategy or auto"},
    )
    workers: _Counts = Field(
        (),
        title="Numbers of workers to compare",
        description="With commas or in lines, e.g. 1, 2, 4. Empty: the training's single value",
        json_schema_extra={**FORM, "allowed": "whole numbers from 1 to 10000, commas between them, e.g. '1, 2, 4'"},
    )
    comm_periods: _Periods = Field(
        (),
        title="Minibatches between exchanges (tau) to compare",
        description="With commas or in lines, e.g. 1, 10, auto, 1@0 10@2000. Empty: the training's single value",
        json_schema_extra=FORM,
    )
    base_lrs: _Rates = Field(
        (),
        title="Learning rates to compare",
        description="base_lr of the solver, with commas or in lines, e.g. 0.1, 0.01; for a search by random or optuna"
        " also a range, e.g. 0.001..0.1. Empty: the solver's",
        json_schema_extra={**FORM, "allowed": "numbers above 0, commas between them, e.g. '0.1, 0.01', or a range"},
    )
    solver_fields: _SolverFields = Field(
        (),
        title="Other solver fields to compare",
        description="A line per field of the solver: FIELD: VALUES, e.g. weight_decay: 0.0005, 0.005; for a search by"
        " random or optuna also a range, e.g. momentum: 0.8..0.95",
        json_schema_extra={**FORM, "allowed": "lines FIELD: VALUES, e.g. 'weight_decay: 0.0005, 0.005'"},
    )
    solvers: _Files = Field(
        (),
        title="Solver files to compare",
        description="With commas or in lines, e.g. nets/adam_solver.prototxt. Empty: the training's solver",
        json_schema_extra=FORM,
    )
    search: Literal["grid", "random", "optuna"] = Field(
        "grid",
        title="Search",
        description="grid: all combinations; random: n_trials random combinations; optuna: n_trials combinations, each"
        " chosen by the accuracies of the trials before (package optuna)",
        json_schema_extra=FORM,
    )
    n_trials: int = Field(
        16,
        ge=2,
        le=64,
        title="Trials of a search",
        description="Most trials of a search by random or optuna",
        json_schema_extra=FORM,
    )
    search_seed: int = Field(
        0, ge=0, title="Seed of the search", description="Seed of random and optuna", json_schema_extra=EXPERT
    )
    early_stop: Literal["none", "halving"] = Field(
        "none",
        title="Early stop",
        description="halving: a trial stops at 1/9 and 1/3 of its minibatches unless its test accuracy is among the"
        " best third of the trials so far at the same clock. A stopped trial has a snapshot",
        json_schema_extra=FORM,
    )
    reduction_factor: int = Field(
        3,
        ge=2,
        le=100,
        title="Reduction factor",
        description="eta of the early stop: the best 1/eta goes on at 1/eta^2 and 1/eta of the minibatches",
        json_schema_extra=EXPERT,
    )
    target_accuracy: float | None = Field(
        None,
        gt=0.0,
        le=1.0,
        title="Accuracy to reach",
        description="The table shows the time until a test net reached this share, e.g. 0.95; default: the lowest last"
        " accuracy of all trials",
        json_schema_extra=FORM,
    )


class CompareConfig(TrialLists):
    """Train in several ways and compare; an empty list uses the single value of the form."""

    simulate: bool = Field(
        False,
        title="Virtual workers",
        description="Simulate the trials on this host's cores in place of training: real gradients, and the times of"
        " the cluster in section Simulate. For strategies and numbers of workers",
        json_schema_extra=FORM,
    )
