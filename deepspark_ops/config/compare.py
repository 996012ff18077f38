"""Options of a comparison: lists of values for the trials."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from deepspark_ops.config.base import FORM, StageConfig

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
    tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)], ...],
    BeforeValidator(_items),
    WithJsonSchema({"anyOf": _LIST}, mode="validation"),
]
_Files = Annotated[tuple[Path, ...], BeforeValidator(_items), WithJsonSchema({"anyOf": _LIST}, mode="validation")]
_ALL: Final = "all combinations of the lists are trained"


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
        description="base_lr of the solver, with commas or in lines, e.g. 0.1, 0.01. Empty: the solver's",
        json_schema_extra={**FORM, "allowed": "numbers above 0, commas between them, e.g. '0.1, 0.01'"},
    )
    solvers: _Files = Field(
        (),
        title="Solver files to compare",
        description="With commas or in lines, e.g. nets/adam_solver.prototxt. Empty: the training's solver",
        json_schema_extra=FORM,
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
