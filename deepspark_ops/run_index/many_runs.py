"""Figures and settings of many runs as columns, and how settings go with the main figure. No framework, no files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

MOST_RUNS: Final = 1_000
_LEAST_RUNS: Final = 3
"""Fewer runs with both values have no correlation."""
_FIGURES: Final = {
    "accuracy": "accuracy",
    "loss": "loss",
    "images_per_s": "images/s",
    "seconds": "duration (s)",
    "clock": "clock",
}
"""Key of a row -> figure."""
_NOT_SHOWN: Final = ("dataset digest", "net digest", "overrides")
"""Digests, and the text of the overrides: each of its fields is a setting of the solver."""
_MOST_TEXTS: Final = 40
"""A setting with more different texts than this is a name and no setting."""


@dataclass(frozen=True)
class Column:
    """Values of a figure or setting, one a run.

    Attributes:
        name: Name of the figure or setting.
        role: Whether the run was started with the values, or gave the values.
        kind: Whether the values are numbers.
        values: Value of each run; None for a missing value.
    """

    name: str
    role: Literal["figure", "setting"]
    kind: Literal["number", "text"]
    values: Sequence[float | str | None]


@dataclass(frozen=True)
class Correlation:
    """How a setting goes with the main figure.

    Attributes:
        setting: Name of the setting.
        measure: ``rank`` for numbers, Spearman's coefficient from -1 to 1; ``groups`` for texts, the correlation ratio
            (share of the variance between the groups, its root) from 0 to 1.
        value: The coefficient.
        n_runs: Runs with both values.
    """

    setting: str
    measure: Literal["rank", "groups"]
    value: float
    n_runs: int


def run_columns(rows: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, str]]) -> list[Column]:
    """Return the figures, and the settings that differ, of runs.

    Args:
        rows: Rows of the list of runs.
        settings: Settings of each run, name -> text.
    """
    columns = [Column(label, "figure", "number", [row[key] for row in rows]) for key, label in _FIGURES.items()]
    labels = dict.fromkeys(row["figure"]["label"] for row in rows if row["figure"])
    for label in labels:
        values = [row["figure"]["value"] if row["figure"] and row["figure"]["label"] == label else None for row in rows]
        columns.append(Column(label, "figure", "number", values))
    columns = [column for column in columns if any(value is not None for value in column.values)]
    names = dict.fromkeys(name for run_settings in settings for name in run_settings if name not in _NOT_SHOWN)
    for name in names:
        texts = [run_settings.get(name) or None for run_settings in settings]
        if len(set(texts) - {None}) > 1 and (column := _setting(name, texts)) is not None:
            columns.append(column)
    return columns


def main_figure(columns: Sequence[Column]) -> str | None:
    """Return the name of the figure that most runs are judged by; None without figures."""
    judged = [
        column for column in columns if column.role == "figure" and column.name not in list(_FIGURES.values())[1:]
    ]
    judged = judged or [column for column in columns if column.name == "loss"]
    counts = Counter({column.name: sum(value is not None for value in column.values) for column in judged})
    return counts.most_common(1)[0][0] if counts else None


def correlations(columns: Sequence[Column], figure: str) -> list[Correlation]:
    """Return how each setting goes with a figure, the strongest first; without settings of too few runs.

    A text needs two runs a group on average: groups of single runs explain any figure.
    """
    (judged,) = [column for column in columns if column.name == figure and column.role == "figure"]
    ranked = []
    for column in columns:
        if column.role != "setting":
            continue
        pairs = [
            (x, float(y)) for x, y in zip(column.values, judged.values, strict=True) if x is not None and y is not None
        ]
        n_groups = len({x for x, _ in pairs})
        if len(pairs) < _LEAST_RUNS or n_groups < 2 or len({y for _, y in pairs}) < 2:
            continue
        if column.kind == "text" and 2 * n_groups > len(pairs):
            continue
        results = np.array([y for _, y in pairs])
        if column.kind == "number":
            value = spearman(np.array([float(x) for x, _ in pairs]), results)
            ranked.append(Correlation(column.name, "rank", value, len(pairs)))
        else:
            value = correlation_ratio([str(x) for x, _ in pairs], results)
            ranked.append(Correlation(column.name, "groups", value, len(pairs)))
    return sorted(ranked, key=lambda correlation: -abs(correlation.value))


def spearman(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation; equal values have the mean of their ranks.

    Example:
        >>> spearman(np.array([1.0, 2.0, 30.0]), np.array([9.0, 5.0, 1.0]))
        -1.0
    """
    return round(float(np.corrcoef(_ranks(first), _ranks(second))[0, 1]), 12)


def correlation_ratio(groups: Sequence[str], values: npt.NDArray[np.float64]) -> float:
    """Return the correlation ratio of values in groups: 0 for equal means, 1 for equal values in each group.

    Example:
        >>> correlation_ratio(["a", "a", "b"], np.array([1.0, 1.0, 2.0]))
        1.0
    """
    _, codes = np.unique(np.array(groups), return_inverse=True)
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=values) / counts
    between = float(np.sum(counts * (means - values.mean()) ** 2))
    return round(math.sqrt(between / float(np.sum((values - values.mean()) ** 2))), 12)


def plain_columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return columns as plain JSON values; a number that is not finite is None."""
    return [{**asdict(column), "values": [_plain(value) for value in column.values]} for column in columns]


def _plain(value: float | str | None) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _setting(name: str, texts: Sequence[str | None]) -> Column | None:
    """Return a setting as numbers if every text is a number; None for texts that are names of their own."""
    numbers = [_number(text) for text in texts]
    if all(number is not None or text is None for number, text in zip(numbers, texts, strict=True)):
        return Column(name, "setting", "number", numbers)
    return Column(name, "setting", "text", list(texts)) if len(set(texts)) <= _MOST_TEXTS else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = (last - (counts - 1) / 2.0)[codes]
    return ranks
