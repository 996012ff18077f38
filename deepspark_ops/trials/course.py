"""Course of a trial's training: tests over time, time to an accuracy, and bytes of exchanges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deepspark_ops.events import Event
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.run_view.series import SECONDS, net_outputs, number_of


@dataclass(frozen=True)
class AccuracyPoint:
    """Test of the center on a test net.

    Attributes:
        clock: Minibatches over all workers.
        seconds: Training time at the pull of the parameters; see ``read_course``.
        accuracy: Accuracy of the test net.
    """

    clock: int
    seconds: float
    accuracy: float


@dataclass(frozen=True)
class Course:
    """Course of a training.

    Attributes:
        tests: Tests of the first test net with an accuracy, by clock.
        seconds: Training time; see ``read_course``.
        exchanges: Exchanges of all workers; None before the first report.
        moved_bytes: Bytes of pushed and pulled parameters; None before the first report.
        images_per_s: Rate of the whole training; None without an end.
        early_stop: Reason of an early stop; empty for a whole training.
        stopped_at: Clock of an early stop.
    """

    tests: tuple[AccuracyPoint, ...]
    seconds: float
    exchanges: int | None
    moved_bytes: int | None
    images_per_s: float | None
    early_stop: str = ""
    stopped_at: int | None = None

    @property
    def last_accuracy(self) -> float | None:
        """Accuracy of the last test; None without tests."""
        return self.tests[-1].accuracy if self.tests else None


@dataclass
class _Start:
    """A start of the training; a retry is another start."""

    clock: int
    zero: float = math.inf
    last: float = 0.0
    exchanges: int | None = None
    moved_bytes: int | None = None
    images_per_s: float | None = None
    early_stop: str = ""
    stopped_at: int | None = None
    tests: list[tuple[int, int, float, float]] = field(default_factory=list)
    """Net, clock, time of the pull, accuracy."""

    @property
    def seconds(self) -> float:
        return max(0.0, self.last - self.zero) if math.isfinite(self.zero) else 0.0


def read_course(events: Iterable[Event]) -> Course:
    """Return the course of a training.

    Time starts at the first minibatch or test of any worker. The start of Spark and TensorFlow and the construction of
    the net are before; this is equal for every trial. A restarted training continues with the time and the bytes so
    far. Tests after the resumed snapshot belong to lost work and do not count.
    """
    starts: list[_Start] = []
    for event in events:
        if event.kind == "stage" and event.data.get("status") == "started":
            starts.append(_Start(event.clock, last=event.time))
        elif starts:
            _take(starts[-1], event)
    tests: dict[int, list[AccuracyPoint]] = {}
    seconds_so_far = 0.0
    for start in starts:
        for net in tests:
            tests[net] = [point for point in tests[net] if point.clock <= start.clock]
        for net, clock, pulled_at, accuracy in start.tests:
            tests.setdefault(net, []).append(AccuracyPoint(clock, seconds_so_far + pulled_at - start.zero, accuracy))
        seconds_so_far += start.seconds
    first = tests[min(tests)] if tests else []
    return Course(
        tests=tuple(sorted(first, key=lambda point: (point.clock, point.seconds))),
        seconds=seconds_so_far,
        exchanges=_total([start.exchanges for start in starts]),
        moved_bytes=_total([start.moved_bytes for start in starts]),
        images_per_s=starts[-1].images_per_s if starts else None,
        early_stop=starts[-1].early_stop if starts else "",
        stopped_at=starts[-1].stopped_at if starts else None,
    )


def _take(start: _Start, event: Event) -> None:
    start.last = max(start.last, event.time)
    match event.kind:
        case "loss":
            start.zero = min(start.zero, event.time - sum(number_of(event.data.get(name)) or 0.0 for name in SECONDS))
        case "evaluation":
            _take_test(start, event)
        case "server" if "moved_bytes" in event.data:
            start.moved_bytes = int(event.data["moved_bytes"])
            start.exchanges = (start.exchanges or 0) + int(event.data["exchanges"])
        case "stage" if "moved_bytes" in event.data:
            start.moved_bytes, start.exchanges = int(event.data["moved_bytes"]), int(event.data["exchanges"])
            rate = event.data.get("images_per_s")
            start.images_per_s = float(rate) if isinstance(rate, int | float) else None
            if reason := event.data.get("early_stop"):
                start.early_stop, start.stopped_at = str(reason), event.clock


def _take_test(start: _Start, event: Event) -> None:
    pulled_at = event.time - float(event.data.get("seconds", 0.0))
    start.zero = min(start.zero, pulled_at)
    accuracy = next((value for name, value in net_outputs(event).items() if is_share(name)), math.nan)
    if not math.isnan(accuracy):
        start.tests.append((int(event.data.get("test_net", 0)), event.clock, pulled_at, accuracy))


def _total(counts: Sequence[int | None]) -> int | None:
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if known_counts else None


def time_to(tests: Iterable[AccuracyPoint], target: float) -> AccuracyPoint | None:
    """Return the first test, by time, with at least ``target``; None without a test.

    Example:
        >>> tests = [AccuracyPoint(0, 0.1, 0.1), AccuracyPoint(100, 2.0, 0.93), AccuracyPoint(200, 4.0, 0.97)]
        >>> time_to(tests, 0.93), time_to(tests, 0.98)
        (AccuracyPoint(clock=100, seconds=2.0, accuracy=0.93), None)
    """
    return min((point for point in tests if point.accuracy >= target), key=lambda point: point.seconds, default=None)
