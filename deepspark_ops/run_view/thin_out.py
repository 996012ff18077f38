"""Fewer points for a line on a screen: each stretch keeps its smallest and greatest value, or its mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]


def kept_points(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], n_stretches: int) -> Indices:
    """Return the indices of the points to draw, ascending: at most ``2 * n_stretches + 2`` and the gaps.

    Args:
        x: Shape ``(n,)``, ascending, finite.
        y: Shape ``(n,)``; a value that is not finite is a gap in the line and is kept.
        n_stretches: Number of stretches of equal width over the range of ``x``, at least 1.

    Example:
        >>> x = np.arange(8.0)
        >>> kept_points(x, np.array([0.0, 1, 9, 1, 0, -7, 0, 1]), 1).tolist()
        [0, 2, 5, 7]
    """
    if len(x) <= 2 * n_stretches + 2:
        return np.arange(len(x))
    is_value = np.isfinite(y)
    finite = np.flatnonzero(is_value)
    gaps = np.flatnonzero(~is_value)
    if finite.size == 0:
        return gaps[:1]
    width = max(float(x[-1] - x[0]), 1e-300)
    stretch = np.minimum(((x[finite] - x[0]) * (n_stretches / width)).astype(np.int64), n_stretches - 1)
    # Sorted by stretch, then by value: a stretch begins with its smallest value and ends with its greatest.
    order = np.lexsort((y[finite], stretch))
    edges = np.flatnonzero(np.diff(stretch[order])) + 1
    least = order[np.concatenate(([0], edges))]
    greatest = order[np.concatenate((edges - 1, [len(order) - 1]))]
    return np.unique(np.concatenate((finite[least], finite[greatest], finite[[0, -1]], gaps)))


def stretch_means(x: _Floats, time: _Floats, y: _Floats, n_stretches: int) -> tuple[_Floats, _Floats, _Floats]:
    """Return the mean of each stretch of a line, for stacked lines: the means of parts add up to the mean of the sum.

    Args:
        x: Shape ``(n,)``, ascending, finite.
        time: Shape ``(n,)``, finite.
        y: Shape ``(n,)``; means leave out values that are not finite.
        n_stretches: Number of stretches with equal numbers of points, at least 1.

    Returns:
        Means of ``x``, ``time`` and ``y``, at most ``n_stretches`` each; a stretch without finite ``y`` is infinite, a
        gap.

    Example:
        >>> x = np.arange(4.0)
        >>> [part.tolist() for part in stretch_means(x, 10 * x, np.array([1.0, 3.0, np.inf, np.inf]), 2)]
        [[0.5, 2.5], [5.0, 25.0], [2.0, inf]]
    """
    if len(x) <= n_stretches:
        return x, time, y
    edges = np.linspace(0, len(x), n_stretches + 1).astype(np.intp)[:-1]
    counts = np.diff(np.append(edges, len(x)))
    is_value = np.isfinite(y)
    n_finite = np.add.reduceat(is_value, edges, dtype=np.float64)
    total = np.add.reduceat(np.where(is_value, y, 0.0), edges)
    means = np.where(n_finite > 0, total / np.maximum(n_finite, 1.0), np.inf)
    return np.add.reduceat(x, edges) / counts, np.add.reduceat(time, edges) / counts, means
