"""Histograms of values of unknown range, in bounded memory; the order of the values does not matter."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Histogram:
    """Counts in boxes of equal sides.

    Attributes:
        low: Lowest edge on each axis.
        width: Side of a box, a power of two.
        counts: One axis per axis of the points, int64; box i of an axis is [low + i * width, low + (i + 1) * width).
    """

    low: tuple[float, ...]
    width: float
    counts: Counts


class HistogramSum:
    """Counts points in boxes; the side of the boxes doubles when an axis would need more than ``most`` boxes.

    The edges of a box are multiples of the side, a power of two, so two neighbours merge without rounding. The counts
    equal the counts with the final side from the start. Not thread-safe.

    Example:
        >>> total = HistogramSum(most=4)
        >>> total.add(np.array([[0.0], [1.0], [1.5], [3.9]]))
        >>> result = total.result()
        >>> result.low, result.width, result.counts.tolist()
        ((0.0,), 1.0, [1, 2, 0, 1])
    """

    def __init__(self, n_axes: int = 1, *, most: int) -> None:
        """Start at nothing; points have ``n_axes`` numbers, and an axis at most ``most`` boxes, 2 at least."""
        self._most = most
        self._exponent = 0
        self._first = np.zeros(n_axes, np.int64)
        self._counts = np.zeros((0,) * n_axes, np.int64)

    def add(self, points: npt.NDArray[np.floating]) -> None:
        """Count points, shape (rows, n_axes), finite."""
        if not len(points):
            return
        wide = np.asarray(points, np.float64)
        low, high = wide.min(axis=0), wide.max(axis=0)
        exponent = self._fitting(low, high)
        bins = np.floor(np.ldexp(wide, -exponent)).astype(np.int64)
        first = bins.min(axis=0)
        extents = tuple(int(extent) for extent in bins.max(axis=0) - first + 1)
        flat = np.ravel_multi_index(tuple((bins - first).T), extents)
        counts = np.bincount(flat, minlength=math.prod(extents)).reshape(extents).astype(np.int64)
        self._join(exponent, first, counts)

    def merge(self, other: HistogramSum) -> None:
        """Add the counts of another sum."""
        if other._counts.size:
            self._join(other._exponent, other._first, other._counts)

    def result(self) -> Histogram:
        """Return the counts; without a point an empty histogram."""
        low = np.ldexp(self._first.astype(np.float64), self._exponent)
        return Histogram(tuple(float(edge) for edge in low), 2.0**self._exponent, self._counts.copy())

    def _fitting(self, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> int:
        """Return the least exponent for these bounds, limited by the resolution of the values."""
        span = float((high - low).max())
        largest = float(max(np.abs(low).max(), np.abs(high).max(), 2.0**-900))
        finest = max(math.frexp(largest)[1] - 52, -1000)
        exponent = max(finest, math.frexp(span / self._most)[1] - 1 if span else finest)
        while np.any(np.floor(np.ldexp(high, -exponent)) - np.floor(np.ldexp(low, -exponent)) >= self._most):
            exponent += 1
        return exponent

    def _join(self, exponent: int, first: Counts, counts: Counts) -> None:
        if not self._counts.size:
            self._exponent, self._first, self._counts = exponent, first.copy(), counts.copy()
            return
        common = max(exponent, self._exponent)
        while True:
            mine = _coarsened(self._first, self._counts, common - self._exponent)
            other_part = _coarsened(first, counts, common - exponent)
            low = np.minimum(mine[0], other_part[0])
            high = np.maximum(mine[0] + mine[1].shape, other_part[0] + other_part[1].shape)
            if np.all(high - low <= self._most):
                break
            common += 1
        joined = np.zeros(tuple(int(extent) for extent in high - low), np.int64)
        for start, part in (mine, other_part):
            joined[tuple(slice(int(at), int(at) + n) for at, n in zip(start - low, part.shape, strict=True))] += part
        self._exponent, self._first, self._counts = common, low, joined


def _coarsened(first: Counts, counts: Counts, doublings: int) -> tuple[Counts, Counts]:
    """Return first box and counts with sides 2^doublings times as long."""
    if not doublings:
        return first, counts
    for axis in range(counts.ndim):
        # Shifts of whole numbers round down, below zero too; 62 put everything on the two sides of zero.
        boxes = (int(first[axis]) + np.arange(counts.shape[axis])) >> min(doublings, 62)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(boxes)) + 1])
        counts = np.add.reduceat(counts, starts, axis=axis)
    return first >> min(doublings, 62), counts
