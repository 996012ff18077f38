"""Training curves from a run's events, over the clock, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deepspark_ops.events import Event
from deepspark_ops.run_view.series import SECONDS, SERVER_NUMBERS, Columns, RunSeries

Point = tuple[float, float]
WORKER_CURVES = ("images_per_s", "distance")


@dataclass(frozen=True)
class Curves:
    """Curves over the clock (minibatches granted over all workers), ascending.

    Attributes:
        loss: Worker -> (clock, training loss).
        mean_loss: Loss over all workers, a running mean over ``smoothing`` reports.
        smoothing: Reports in one mean; at least one of each worker.
        learning_rate: (clock, rate) of the reporting worker.
        workers: Number of a worker's report (``WORKER_CURVES``) -> worker -> (clock, value).
        time_shares: Name in ``SECONDS`` -> (clock, share of the workers' time), a running mean over ``smoothing``
            reports.
        evaluations: Output of a test net -> (clock, value).
        exchange: Number of the exchange as a whole (``SERVER_NUMBERS``) -> (clock, value).
        n_workers: Number of workers with reports.
        seconds: Wall time from the first event to the last.
        warnings: Warnings of the driver, oldest first, each text once.
    """

    loss: Mapping[int, list[Point]]
    mean_loss: list[Point]
    smoothing: int
    learning_rate: list[Point]
    workers: Mapping[str, Mapping[int, list[Point]]]
    time_shares: Mapping[str, list[Point]]
    evaluations: Mapping[str, list[Point]]
    exchange: Mapping[str, list[Point]]
    n_workers: int
    seconds: float
    warnings: tuple[str, ...] = ()


def read_curves(events: Iterable[Event]) -> Curves:
    """Collect the curves of a run.

    A retried run repeats clocks: for equal (worker, clock) the later event counts, because its weights were kept.
    Values that are not finite are left out (``events`` writes them as text).
    """
    series = RunSeries()
    times: list[float] = []
    warnings: dict[str, None] = {}
    for at, event in enumerate(events):
        times.append(event.time)
        if event.kind == "note" and event.data.get("warning") is True:
            warnings[str(event.data.get("text", ""))] = None
        series.take(event, at)
    all_losses = sorted(point for columns in series.workers.values() for point in _points(columns, "loss"))
    smoothing = max(1, len(series.workers), len(all_losses) // 15)
    rates = (point for columns in series.workers.values() for point in _points(columns, "learning_rate"))
    return Curves(
        loss=_by_worker(series, "loss"),
        mean_loss=_running_mean(all_losses, smoothing),
        smoothing=smoothing,
        learning_rate=sorted(dict(rates).items()),
        workers={name: curves for name in WORKER_CURVES if (curves := _by_worker(series, name))},
        time_shares=_time_shares(series, smoothing),
        evaluations=_evaluations(series),
        exchange={name: points for name in SERVER_NUMBERS if (points := _points(series.server, name))},
        n_workers=len(series.workers),
        seconds=max(times) - min(times) if times else 0.0,
        warnings=tuple(warnings),
    )


def _points(columns: Columns, name: str) -> list[Point]:
    """Return (clock, value) of the rows with this number, ascending; for equal clocks the later row's value."""
    if name not in columns.values:
        return []
    clock, _, value = columns.line(name)
    is_finite = np.isfinite(value)
    return sorted(dict(zip(clock[is_finite].tolist(), value[is_finite].tolist(), strict=True)).items())


def _by_worker(series: RunSeries, name: str) -> dict[int, list[Point]]:
    worker_points = {worker: _points(columns, name) for worker, columns in sorted(series.workers.items())}
    return {worker: points for worker, points in worker_points.items() if points}


def _evaluations(series: RunSeries) -> dict[str, list[Point]]:
    """Return each test net's outputs by name; names of a second test net end with its number."""
    return {
        name + (f" (test net {net})" if net else ""): points
        for net, columns in sorted(series.tests.items())
        for name in columns.values
        if (points := _points(columns, name))
    }


def _time_shares(series: RunSeries, smoothing: int) -> dict[str, list[Point]]:
    """Return the share of each of ``SECONDS`` in the workers' time; empty if no report has the times."""
    reports: list[tuple[float, int, dict[str, float]]] = []
    for worker, columns in series.workers.items():
        spent: dict[float, dict[str, float]] = {}
        for name in SECONDS:
            for clock, seconds in _points(columns, name):
                spent.setdefault(clock, dict.fromkeys(SECONDS, 0.0))[name] = seconds
        reports += [(clock, worker, seconds) for clock, seconds in spent.items() if sum(seconds.values()) > 0.0]
    reports.sort(key=lambda report: report[:2])
    means = {name: _running_mean([(clock, data[name]) for clock, _, data in reports], smoothing) for name in SECONDS}
    totals = [sum(seconds for _, seconds in points) for points in zip(*means.values(), strict=True)]
    shares = {
        name: [(clock, seconds / total) for (clock, seconds), total in zip(points, totals, strict=True)]
        for name, points in means.items()
    }
    return shares if totals else {}


def _running_mean(points: Sequence[tuple[float, float]], length: int) -> list[Point]:
    """Return the mean of every ``length`` neighbours, at the mean of their clocks."""
    means = []
    clocks = total = 0.0
    for at, (clock, value) in enumerate(points):
        clocks += clock
        total += value
        if at >= length:
            clocks -= points[at - length][0]
            total -= points[at - length][1]
        if at >= length - 1:
            means.append((clocks / length, total / length))
    return means
