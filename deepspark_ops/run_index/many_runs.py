"""Figures and settings of many runs as columns, and how settings go with the main figure. No framework, no files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
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
_OPERATION: Final = (
    "verify", "resume", "parity", "min_workers_wait_s", "worker_tries", "grant_timeout_s", "exchange_timeout_s",
    "staging_folder", "staging_size", "tls", "insecure_network", "spark_ui", "master", "check_pushes",
    "watch", "stop_below", "allowed_root", "confined", "allow_python_layers", "python_layers",
)  # fmt: skip
"""Options about the place, safety and supervision of a run; none changes the training."""
_REPORTING: Final = (
    "display", "debug_info", "test_iter", "test_interval", "test_initialization", "test_compute_loss", "average_loss",
    "snapshot", "snapshot_format", "snapshot_diff", "snapshot_after_train",
)  # fmt: skip
"""Fields of a solver about logs, tests and snapshots."""
_NOT_SHOWN: Final = frozenset(
    ("dataset digest", "net digest", "solver", "overrides", *_OPERATION, *(f"solver: {field}" for field in _REPORTING))
)
"""Besides: digests, and the solver's file and overrides, for each field of both is a setting."""
_SHUFFLES: Final = 999
_SAME: Final = 1e-9
"""Difference of two coefficients by rounding."""
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
        p_value: Share of shuffles of the figure over the runs with a coefficient at least as far from 0.
    """

    setting: str
    measure: Literal["rank", "groups"]
    value: float
    n_runs: int
    p_value: float


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
    """Return how each setting goes with a figure, the best proved first; without settings of too few runs.

    The smallest p-value is first, since few runs correlate by chance; of equal p-values the strongest coefficient. A
    text needs two runs a group on average: groups of single runs explain any figure.
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
            numbers = np.array([float(x) for x, _ in pairs])
            value, p_value = spearman(numbers, results), _p_value(_unit(_ranks(numbers))[:, None], _ranks(results))
            ranked.append(Correlation(column.name, "rank", value, len(pairs), p_value))
        else:
            texts = [str(x) for x, _ in pairs]
            value, p_value = correlation_ratio(texts, results), _p_value(_indicators(texts), results)
            ranked.append(Correlation(column.name, "groups", value, len(pairs), p_value))
    return sorted(ranked, key=lambda correlation: (correlation.p_value, -abs(correlation.value)))


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


def _p_value(directions: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> float:
    """Return the p-value of a permutation test.

    Source: Phipson and Smyth, "Permutation p-values should never be zero" (2010), equation 2.

    Args:
        directions: Orthonormal columns, (runs, columns). The coefficient is the length of the centered, normed values'
            projection: Spearman's for ranks as the only column, the correlation ratio for indicators of groups.
        values: Figure of each run, or its rank.
    """
    target = _unit(values)
    coefficients = np.linalg.norm(target[_shuffles(len(target))] @ directions, axis=1)
    n_as_far = np.count_nonzero(coefficients >= np.linalg.norm(target @ directions) - _SAME)
    return float(1 + n_as_far) / (1 + _SHUFFLES)


@lru_cache(maxsize=4)
def _shuffles(n_runs: int) -> npt.NDArray[np.int64]:
    """Return orders of runs, (_SHUFFLES, runs), the same ones at each call."""
    return np.random.default_rng(0).permuted(np.tile(np.arange(n_runs), (_SHUFFLES, 1)), axis=1)


def _unit(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    centered = values - values.mean()
    unit: npt.NDArray[np.float64] = centered / np.linalg.norm(centered)
    return unit


def _indicators(groups: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return a column per group, (runs, groups), with length 1 each."""
    _, codes, counts = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    return np.eye(len(counts))[codes] / np.sqrt(counts)


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
