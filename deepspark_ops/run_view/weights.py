"""Weights, updates and distances by blob over a run, from the events of the option ``watch``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deepspark_ops.events import Event
from deepspark_ops.run_view.series import number_of

COLUMNS_KEPT: Final = 120
"""Moments in memory; beyond, every second moment is dropped, and so for later ones."""
Numbers = Sequence[float | None]


@dataclass
class Moment:
    """The events at one multiple of ``watch``.

    Attributes:
        clock: Clock of the event about the center; before it, of the first event.
        center: Fields of the event about the center; empty before it.
        distances: Worker -> distance to the center by blob.
    """

    clock: int
    center: Mapping[str, Any] = field(default_factory=dict)
    distances: dict[int, Numbers] = field(default_factory=dict)


class WatchedWeights:
    """The moments of a run. Not thread-safe.

    Attributes:
        blobs: Names of the watched blobs, in the net's order.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.blobs: tuple[str, ...] = ()
        self._moments: dict[int, Moment] = {}
        self._stride = 1

    def __bool__(self) -> bool:
        """Return whether there is a moment to show."""
        return any(moment.center for moment in self._moments.values())

    def take(self, event: Event) -> None:
        """Take an event; moments beyond the clock of a new start are dropped, a watch without its fields is ignored."""
        if event.kind == "stage" and event.data.get("status") == "started":
            self._cut(event.clock)
        if event.kind == "watch":
            self._take_watch(event)

    def _take_watch(self, event: Event) -> None:
        blobs, every = event.data.get("blobs"), event.data.get("every")
        if not isinstance(blobs, list) or not isinstance(every, int) or every < 1:
            return
        self.blobs = tuple(str(blob) for blob in blobs)
        ordinal = event.clock // every
        if ordinal % self._stride:
            return
        moment = self._moments.setdefault(ordinal, Moment(event.clock))
        if "norm" in event.data:
            moment.center, moment.clock = event.data, event.clock
        if isinstance(distance := event.data.get("distance"), list):
            moment.distances[event.worker] = [number_of(value) for value in distance]
        if len(self._moments) > COLUMNS_KEPT:
            self._stride *= 2
            self._moments = {at: moment for at, moment in self._moments.items() if at % self._stride == 0}

    def _cut(self, clock: int) -> None:
        """Drop the moments beyond a clock."""
        self._moments = {at: moment for at, moment in self._moments.items() if moment.clock <= clock}

    def answer(self) -> dict[str, Any]:
        """Return sizes and distances of all blobs as plain JSON values, by moment and blob.

        Returns:
            ``size`` is the L2 norm of the center's blob; ``update`` the norm of its movement in one minibatch, and
            ``distance`` the mean over the workers of the norm of local - center, both as shares of ``size``. The rows
            of ``workers`` are the distances of each worker at the last moment; at the moment before, if fewer workers
            have reported since then. None: unknown.
        """
        moments = self._complete()
        last = max(moments[-1:-3:-1], key=lambda moment: len(moment.distances), default=Moment(0))
        return {
            "blobs": list(self.blobs),
            "clock": [moment.clock for moment in moments],
            "size": [self._row(moment, "norm") for moment in moments],
            "update": [self._updates(moment) for moment in moments],
            "distance": [self._distances(moment) for moment in moments],
            "workers_clock": last.clock,
            "workers": [
                {"worker": worker, "distance": _shares(distance, self._row(last, "norm"))}
                for worker, distance in sorted(last.distances.items())
            ],
        }

    def histograms(self, blob: str) -> dict[str, Any] | None:
        """Return the histograms of a blob and of its updates, by moment; None for an unknown blob."""
        if blob not in self.blobs:
            return None
        at = self.blobs.index(blob)
        moments = self._complete()
        parts = {name: [_element(moment.center.get(name), at) for moment in moments] for name in ("values", "updates")}
        return {"blob": blob, "clock": [moment.clock for moment in moments], **parts}

    def _complete(self) -> list[Moment]:
        """Return the moments with the event about the center, oldest first."""
        return [moment for _, moment in sorted(self._moments.items()) if moment.center]

    def _row(self, moment: Moment, name: str) -> Numbers:
        values = moment.center.get(name)
        if not isinstance(values, list) or len(values) != len(self.blobs):
            return [None] * len(self.blobs)
        return [_finite(number_of(value)) for value in values]

    def _updates(self, moment: Moment) -> Numbers:
        minibatches = number_of(moment.center.get("minibatches")) or 1.0
        return [
            None if share is None else share / minibatches
            for share in _shares(self._row(moment, "update"), self._row(moment, "norm"))
        ]

    def _distances(self, moment: Moment) -> Numbers:
        rows = [row for row in moment.distances.values() if len(row) == len(self.blobs)]
        if not rows:
            return [None] * len(self.blobs)
        means = [_mean(values) for values in zip(*rows, strict=True)]
        return _shares(means, self._row(moment, "norm"))


def _shares(values: Numbers, sizes: Numbers) -> Numbers:
    """Return each value as a share of its size; None for an unknown value and for a size of 0."""
    return [
        None if value is None or not size else _finite(float(f"{value / size:.4g}"))
        for value, size in zip(values, sizes, strict=True)
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _element(values: Any, at: int) -> Any:
    return values[at] if isinstance(values, list) and at < len(values) else None
