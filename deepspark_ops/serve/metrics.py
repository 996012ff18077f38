"""Counters of the server, in Prometheus' text format 0.0.4."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FIRST_ERROR = 400


@dataclass
class Histogram:
    """Counts values by upper bounds. The owner guards the counts.

    Attributes:
        bounds: Upper bounds, ascending; a bound counts the values up to and including the bound.
    """

    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        """Begin with counts of 0."""
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of the histogram."""
        so_far = 0
        for bound, count in zip([*self.bounds, "+Inf"], self.counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{le="{bound}"}} {so_far}'
        yield f"{name}_sum {self.total:.9g}"
        yield f"{name}_count {so_far}"


class ServerMetrics:
    """Counts of answers since the start. Safe to share between threads."""

    def __init__(self, net: str, digest: str) -> None:
        """Begin to count for a model with a net's name and a manifest's digest."""
        self._info = f'{{net="{_escaped(net)}",digest="{_escaped(digest)}"}}'
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds = Histogram(SECONDS)
        self._call_seconds = Histogram(SECONDS)
        self._call_samples = Histogram(SAMPLES)
        self._in_progress = 0

    def began(self) -> None:
        """Count a prediction that is in progress."""
        with self._lock:
            self._in_progress += 1

    def ended(self) -> None:
        """Count the end of a prediction."""
        with self._lock:
            self._in_progress -= 1

    def answered(self, path: str, status: int, seconds: float, *, is_prediction: bool) -> None:
        """Count an answer, and the time of a prediction.

        Args:
            path: A path of the server, or a word for all other paths: every path has a line.
            status: HTTP status.
            seconds: Time from the request's head to the end of the answer.
            is_prediction: Whether the answer is a prediction.
        """
        with self._lock:
            self._requests[path, status] += 1
            if is_prediction:
                self._seconds.add(seconds)

    def computed(self, n_samples: int, seconds: float) -> None:
        """Count a graph call."""
        with self._lock:
            self._call_samples.add(n_samples)
            self._call_seconds.add(seconds)

    def text(self) -> str:
        """Return all counters."""
        with self._lock:
            lines = [*self._lines()]
        return "\n".join(lines) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("deepspark_model_info", "gauge", "The model that is served.")
        yield f"deepspark_model_info{self._info} 1"
        yield from _head("deepspark_requests_total", "counter", "Answered requests by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'deepspark_requests_total{{path="{path}",code="{status}"}} {count}'
        yield from _head("deepspark_errors_total", "counter", "Requests answered with a status from 400 on, by path.")
        errors: Counter[str] = Counter()
        for (path, status), count in self._requests.items():
            errors[path] += count if status >= _FIRST_ERROR else 0
        for path, count in sorted(errors.items()):
            yield f'deepspark_errors_total{{path="{path}"}} {count}'
        yield from _head("deepspark_requests_in_progress", "gauge", "Predictions that are read, wait or are computed.")
        yield f"deepspark_requests_in_progress {self._in_progress}"
        yield from _head("deepspark_request_seconds", "histogram", "Seconds from a prediction's head to its answer.")
        yield from self._seconds.lines("deepspark_request_seconds")
        yield from _head("deepspark_samples_total", "counter", "Samples that went through the net.")
        yield f"deepspark_samples_total {self._call_samples.total:.0f}"
        yield from _head("deepspark_graph_call_samples", "histogram", "Samples of a graph call.")
        yield from self._call_samples.lines("deepspark_graph_call_samples")
        yield from _head("deepspark_graph_call_seconds", "histogram", "Seconds of a graph call.")
        yield from self._call_seconds.lines("deepspark_graph_call_seconds")


def _head(name: str, kind: str, description: str) -> tuple[str, str]:
    return f"# HELP {name} {description}", f"# TYPE {name} {kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
