"""Excluded rows of a shard: a later version of a dataset leaves out rows without writing a new shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ranges = Sequence[tuple[int, int]]
"""[start, stop) of rows, ascending, without empty or adjoining ranges."""


def as_ranges(rows: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return rows as ranges.

    Example:
        >>> as_ranges([7, 3, 4, 4])
        ((3, 5), (7, 8))
    """
    ranges: list[tuple[int, int]] = []
    for row in sorted(set(rows)):
        if ranges and ranges[-1][1] == row:
            ranges[-1] = (ranges[-1][0], row + 1)
        else:
            ranges.append((row, row + 1))
    return tuple(ranges)


def kept_rows(excluded: Ranges, n_rows: int) -> npt.NDArray[np.int64]:
    """Return the rows that count, ascending.

    Example:
        >>> kept_rows([(1, 3)], 5).tolist()
        [0, 3, 4]
    """
    counts = np.ones(n_rows, bool)
    for start, stop in excluded:
        counts[start:stop] = False
    return np.flatnonzero(counts)


def row_ranges(excluded: Ranges, start: int, count: int) -> list[tuple[int, int]]:
    """Return the rows of ``count`` counted samples from sample ``start`` on, as ranges.

    Example:
        >>> row_ranges([(1, 3)], 0, 3)
        [(0, 1), (3, 5)]
    """
    ranges: list[tuple[int, int]] = []
    row = start
    bounds = [*excluded, (row + count + sum(stop - first for first, stop in excluded), 0)]
    for first, stop in bounds:
        if row < first:
            piece = min(count, first - row)
            ranges.append((row, row + piece))
            row, count = row + piece, count - piece
        if not count:
            break
        row += stop - first
    return ranges
