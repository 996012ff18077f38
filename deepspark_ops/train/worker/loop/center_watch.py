"""Histograms of the center's blobs and updates, and a worker's distance to the center by blob: the option ``watch``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from caffe_import.net.param_layout import ParamEntry
from deepspark_ops.param_vector import Vector

BINS: Final = 20
MOST_BLOBS: Final = 400
"""Blobs in an event, in the net's order: an event has at most about 100 KiB."""
SAMPLED: Final = 1 << 16
"""Values of a blob in a histogram, evenly spaced."""


@dataclass(frozen=True)
class WatchPlan:
    """Watch of a worker.

    Attributes:
        every: Minibatches of the clock between two events, at least 1.
        blobs: The watched blobs, in the net's order.
        has_histograms: Whether this worker reports on the center.
        has_distance: Whether ``Model.local`` returns the worker's parameters, and other workers move the center.
    """

    every: int
    blobs: tuple[ParamEntry, ...]
    has_histograms: bool
    has_distance: bool


class CenterWatch:
    """Makes a worker's events of kind ``watch``. Used by the loop's thread."""

    def __init__(self, plan: WatchPlan, clock: int) -> None:
        """Wait for the first multiple of ``plan.every`` after ``clock``."""
        self._plan = plan
        self._n_seen = clock // plan.every
        self._last_center: Vector | None = None
        self._last_clock = clock

    def is_due(self, clock: int) -> bool:
        """Return whether the clock has passed a multiple of ``every`` since the last event."""
        return clock // self._plan.every > self._n_seen

    def event_data(self, clock: int, center: Vector, local: Vector) -> dict[str, Any]:
        """Return the fields of an event; the next event is due at the next multiple of ``every``.

        Args:
            clock: The present clock.
            center: Copy of the center, shape (n_params,), which this object may keep.
            local: The worker's ``Model.local`` before the exchange, shape (n_params,).
        """
        plan = self._plan
        self._n_seen = clock // plan.every
        data: dict[str, Any] = {"every": plan.every, "blobs": [blob.name for blob in plan.blobs]}
        if plan.has_distance:
            data["distance"] = [_norm(_part(local, blob) - _part(center, blob)) for blob in plan.blobs]
        if plan.has_histograms:
            data["norm"] = [_norm(_part(center, blob)) for blob in plan.blobs]
            data["values"] = [histogram(_part(center, blob)) for blob in plan.blobs]
            data |= self._updates(center)
            data["minibatches"] = clock - self._last_clock
            self._last_center, self._last_clock = center, clock
        return data

    def _updates(self, center: Vector) -> dict[str, Any]:
        """Return norms and histograms of the center's movement since the last event; nothing for the first event."""
        if self._last_center is None:
            return {}
        updates = [_part(center, blob) - _part(self._last_center, blob) for blob in self._plan.blobs]
        return {"update": [_norm(update) for update in updates], "updates": [histogram(update) for update in updates]}


def watched_blobs(entries: Sequence[ParamEntry]) -> tuple[ParamEntry, ...]:
    """Return the first ``MOST_BLOBS`` learned blobs of a net; statistics are no parameters."""
    return tuple(entry for entry in entries if entry.kind == "weight")[:MOST_BLOBS]


def histogram(values: Vector) -> list[Any] | None:
    """Return lowest value, highest value, and the counts of ``BINS`` equal bins between; None without a finite value.

    A blob of more than ``SAMPLED`` values is sampled evenly.

    Example:
        >>> histogram(np.array([0.0, 1.0, 1.0], np.float32))
        [0.0, 1.0, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]]
    """
    sample = values[:: -(-values.size // SAMPLED)]
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return None
    counts, edges = np.histogram(sample.astype(np.float64), BINS)
    return [_short(edges[0]), _short(edges[-1]), counts.tolist()]


def _part(vector: Vector, blob: ParamEntry) -> Vector:
    return vector[blob.offset : blob.stop]


def _norm(values: Vector) -> float:
    return _short(np.linalg.norm(values.astype(np.float64)))


def _short(value: np.floating[Any]) -> float:
    """Return five digits of a number."""
    return float(f"{float(value):.5g}")
