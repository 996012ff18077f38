"""A run's numbers in MLflow's form: key, value, step, time. The step is the clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.run_view.series import SECONDS, SERVER_NUMBERS, Columns, RunSeries
from deepspark_ops.run_view.thin_out import kept_points

MAX_POINTS: Final = 20_000
"""Points of a single transfer, over all lines: MLflow writes some thousands a second."""
MAX_LINE_POINTS: Final = 1_000
MIN_LINE_POINTS: Final = 20
MAX_WORKERS: Final = 16
"""A run with more workers has only lines of all workers together."""
_WORKER_LINES: Final = ("loss", "images_per_s", "staleness", "distance")
_WHOLE_LINES: Final = ("loss", "images_per_s", "learning_rate")
_NOT_IN_KEYS = re.compile(r"[^\w.\- ]")


@dataclass(frozen=True)
class MetricPoint:
    """One number.

    Attributes:
        key: Name of the number; the part before a slash is a group in MLflow's pages.
        value: Finite value.
        step: Minibatches granted over all workers.
        time_ms: Milliseconds since the epoch.
    """

    key: str
    value: float
    step: int
    time_ms: int


def curve_points(series: RunSeries, *, after_offset: int = -1) -> list[MetricPoint]:
    """Return the points of a run's curves, thinned out for a single transfer.

    In a line with too many points each stretch of the clock keeps the smallest and the greatest value. Infinite values
    and NaN are left out.

    Args:
        series: Series of the run.
        after_offset: Offset in the run's events; only points of later events are returned.
    """
    lines = [(key, columns, name) for key, columns, name in _lines(series) if name in columns.values]
    share = min(MAX_LINE_POINTS, max(MIN_LINE_POINTS, MAX_POINTS // max(1, len(lines))))
    return [point for key, columns, name in lines for point in _line_points(key, columns, name, share, after_offset)]


def evaluation_points(metrics: MetricsReport, group: str, clock: int, time_ms: int) -> list[MetricPoint]:
    """Return the figures of an evaluation.

    Args:
        metrics: The evaluation.
        group: Prefix of the keys.
        clock: Step for scored weights without an iteration.
        time_ms: Time of the evaluation.
    """
    figures = {row.name: row.value for row in (*metrics.rows(), *metrics.further_rows())} | {"loss": metrics.loss}
    if metrics.main.interval is not None:
        figures[f"{metrics.main.name}_low"], figures[f"{metrics.main.name}_high"] = metrics.main.interval
    for further_result in metrics.others:
        figures |= {
            f"{_NOT_IN_KEYS.sub('_', further_result.scored.score_blob)}/{row.name}": row.value
            for row in further_result.rows()
        }
    figures["images_per_s"] = metrics.speed.images_per_s if metrics.speed else None
    step = clock if metrics.scored.iteration is None else metrics.scored.iteration
    return [
        MetricPoint(f"{group}/{name}", float(value), step, time_ms)
        for name, value in figures.items()
        if value is not None and np.isfinite(value)
    ]


def _lines(series: RunSeries) -> Iterator[tuple[str, Columns, str]]:
    for name in _WHOLE_LINES:
        yield name, series.all_workers, name
    for name in SECONDS:
        yield f"time_share/{name.removesuffix('_s')}", series.all_workers, name
    for name in SERVER_NUMBERS:
        yield f"exchange/{name}", series.server, name
    yield "epoch", series.epochs, "epoch"
    for net, columns in sorted(series.tests.items()):
        for name in columns.values:
            yield f"test_{net}/{_NOT_IN_KEYS.sub('_', name)}", columns, name
    if len(series.workers) <= MAX_WORKERS:
        for worker, columns in sorted(series.workers.items()):
            for name in _WORKER_LINES:
                yield f"worker_{name}/worker_{worker}", columns, name


def _line_points(key: str, columns: Columns, name: str, n_points: int, after_offset: int) -> list[MetricPoint]:
    clock, time, value = columns.line(name, after_offset=after_offset)
    is_value = np.isfinite(value)
    clock, time, value = clock[is_value], time[is_value], value[is_value]
    kept_indices = kept_points(clock, value, (n_points - 2) // 2)
    return [
        MetricPoint(key, float(y), int(x), int(t * 1000))
        for x, t, y in zip(clock[kept_indices], time[kept_indices], value[kept_indices], strict=True)
    ]
