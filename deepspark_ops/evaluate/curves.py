"""Training curves out of a run's events: what the report draws, without knowing how it is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deepspark_ops.events import DRIVER, Event

Point = tuple[float, float]
SERVER_NUMBERS = ("exchanges_per_s", "bytes_per_s", "staleness", "lost_updates")
WORKER_NUMBERS = ("images_per_s", "distance")
SECONDS = ("compute_s", "data_s", "exchange_s")
"""Where a worker's time went since its last report: computing, waiting for data, exchanging."""


@dataclass(frozen=True)
class Curves:
    """Curves over the clock (minibatches granted over all workers), ascending.

    Attributes:
        loss: Worker -> (clock, training loss).
        mean_loss: Loss over all workers, a running mean over ``smoothing`` reports.
        smoothing: Reports in one mean; at least one of each worker.
        learning_rate: (clock, rate), of the worker that reported.
        workers: Number of a worker's report (``WORKER_NUMBERS``) -> worker -> (clock, value).
        time_shares: One of ``SECONDS`` -> (clock, share of the workers' time), a running mean over ``smoothing``
            reports.
        evaluations: Output of a test net -> (clock, value).
        exchange: Number of the exchange as a whole (``SERVER_NUMBERS``) -> (clock, value).
        n_workers: Workers that reported.
        seconds: First event to last, wall time.
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


def read_curves(events: Iterable[Event]) -> Curves:
    """Collect the curves of a run.

    A run that was retried repeats clocks: of equal (worker, clock) the later event counts, as it describes the
    weights that went on. Values that are not finite are left out (``events`` writes them as text).
    """
    reports: dict[int, dict[int, Mapping[str, float]]] = defaultdict(dict)
    evaluations: dict[str, dict[int, float]] = defaultdict(dict)
    exchange: dict[str, dict[int, float]] = defaultdict(dict)
    times: list[float] = []
    for event in events:
        times.append(event.time)
        if event.kind == "loss" and event.worker != DRIVER:
            reports[event.worker][event.clock] = _numbers(event)
        elif event.kind == "evaluation":
            for name, value in _outputs(event).items():
                evaluations[name][event.clock] = value
        elif event.kind == "server":
            for name, value in _exchange_numbers(event).items():
                exchange[name][event.clock] = value
    reported = sorted(
        ((clock, data) for points in reports.values() for clock, data in points.items()), key=lambda at: at[0]
    )
    all_losses = sorted(_named(reported, "loss"))
    smoothing = max(1, len(reports), len(all_losses) // 15)
    return Curves(
        loss=_by_worker(reports, "loss"),
        mean_loss=_running_mean(all_losses, smoothing),
        smoothing=smoothing,
        learning_rate=sorted(dict(_named(reported, "learning_rate")).items()),
        workers={name: found for name in WORKER_NUMBERS if (found := _by_worker(reports, name))},
        time_shares=_time_shares(reported, smoothing),
        evaluations={name: sorted((float(c), v) for c, v in points.items()) for name, points in evaluations.items()},
        exchange={name: sorted((float(c), v) for c, v in points.items()) for name, points in exchange.items()},
        n_workers=len(reports),
        seconds=max(times) - min(times) if times else 0.0,
    )


def _numbers(event: Event) -> dict[str, float]:
    return {name: float(value) for name, value in event.data.items() if _is_number(value)}


def _named(reports: Iterable[tuple[int, Mapping[str, float]]], name: str) -> list[Point]:
    """Return (clock, value) of the reports that have the number."""
    return [(float(clock), data[name]) for clock, data in reports if name in data]


def _by_worker(reports: Mapping[int, Mapping[int, Mapping[str, float]]], name: str) -> dict[int, list[Point]]:
    found = {worker: sorted(_named(points.items(), name)) for worker, points in sorted(reports.items())}
    return {worker: points for worker, points in found.items() if points}


def _time_shares(reports: Sequence[tuple[int, Mapping[str, float]]], smoothing: int) -> dict[str, list[Point]]:
    """Return what part of the workers' time each of ``SECONDS`` took; empty if no report has them."""
    timed = [(clock, data) for clock, data in reports if sum(data.get(name, 0.0) for name in SECONDS) > 0.0]
    means = {
        name: _running_mean([(clock, data.get(name, 0.0)) for clock, data in timed], smoothing) for name in SECONDS
    }
    whole = [sum(seconds for _, seconds in points) for points in zip(*means.values(), strict=True)]
    shares = {
        name: [(clock, seconds / total) for (clock, seconds), total in zip(points, whole, strict=True)]
        for name, points in means.items()
    }
    return shares if whole else {}


def _outputs(event: Event) -> dict[str, float]:
    """Return the test net's scalar outputs by name; those of a second test net carry its number."""
    test_net = int(event.data.get("test_net", 0))
    suffix = f" (test net {test_net})" if test_net else ""
    return {
        name + suffix: float(value)
        for name, value in event.data.items()
        if _is_number(value) and name not in ("test_net", "seconds")
    }


def _exchange_numbers(event: Event) -> dict[str, float]:
    return {name: float(event.data[name]) for name in SERVER_NUMBERS if _is_number(event.data.get(name))}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _running_mean(points: Sequence[tuple[float, float]], length: int) -> list[Point]:
    """Return the mean of each ``length`` neighbours, at the mean of their clocks."""
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
