"""Training curves out of a run's events: what the report draws, without knowing how it is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deepspark_ops.events import DRIVER, Event

Point = tuple[float, float]
SERVER_NUMBERS = ("exchanges_per_s", "bytes_per_s", "staleness", "lost_updates")


@dataclass(frozen=True)
class Curves:
    """Curves over the clock (minibatches granted over all workers), ascending.

    Attributes:
        loss: Worker -> (clock, training loss).
        mean_loss: Loss over all workers, a running mean over ``smoothing`` reports.
        smoothing: Reports in one mean; at least one of each worker.
        learning_rate: (clock, rate), of the worker that reported.
        evaluations: Output of a test net -> (clock, value).
        exchange: Number of the exchange as a whole (``SERVER_NUMBERS``) -> (clock, value).
        n_workers: Workers that reported.
        seconds: First event to last, wall time.
    """

    loss: Mapping[int, list[Point]]
    mean_loss: list[Point]
    smoothing: int
    learning_rate: list[Point]
    evaluations: Mapping[str, list[Point]]
    exchange: Mapping[str, list[Point]]
    n_workers: int
    seconds: float


def read_curves(events: Iterable[Event]) -> Curves:
    """Collect the curves of a run.

    A run that was retried repeats clocks: of equal (worker, clock) the later event counts, as it describes the
    weights that went on. Values that are not finite are left out (``events`` writes them as text).
    """
    loss: dict[int, dict[int, float]] = defaultdict(dict)
    rate: dict[int, float] = {}
    evaluations: dict[str, dict[int, float]] = defaultdict(dict)
    exchange: dict[str, dict[int, float]] = defaultdict(dict)
    times: list[float] = []
    for event in events:
        times.append(event.time)
        if event.kind == "loss" and event.worker != DRIVER:
            if _is_number(event.data.get("loss")):
                loss[event.worker][event.clock] = float(event.data["loss"])
            if _is_number(event.data.get("learning_rate")):
                rate[event.clock] = float(event.data["learning_rate"])
        elif event.kind == "evaluation":
            for name, value in _outputs(event).items():
                evaluations[name][event.clock] = value
        elif event.kind == "server":
            for name, value in _exchange_numbers(event).items():
                exchange[name][event.clock] = value
    all_losses = sorted((clock, value) for points in loss.values() for clock, value in points.items())
    smoothing = max(1, len(loss), len(all_losses) // 15)
    return Curves(
        loss={worker: sorted((float(c), v) for c, v in points.items()) for worker, points in sorted(loss.items())},
        mean_loss=_running_mean(all_losses, smoothing),
        smoothing=smoothing,
        learning_rate=sorted((float(clock), value) for clock, value in rate.items()),
        evaluations={name: sorted((float(c), v) for c, v in points.items()) for name, points in evaluations.items()},
        exchange={name: sorted((float(c), v) for c, v in points.items()) for name, points in exchange.items()},
        n_workers=len(loss),
        seconds=max(times) - min(times) if times else 0.0,
    )


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


def _running_mean(points: list[tuple[int, float]], length: int) -> list[Point]:
    means = []
    total = 0.0
    for at, (_, value) in enumerate(points):
        total += value
        if at >= length:
            total -= points[at - length][1]
        if at >= length - 1:
            means.append((points[at - (length - 1) // 2][0] * 1.0, total / length))
    return means
