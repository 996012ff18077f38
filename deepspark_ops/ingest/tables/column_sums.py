"""Count, mean and spread of every feature, added up in parts: each part is exact to rounding, none is read twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ColumnSums:
    """Sums, counts and extremes of D columns over some rows. NaN, a missing value, counts in ``n_missing`` alone.

    Attributes:
        count: (D,) values that are there.
        n_missing: (D,) values that are missing.
        mean: (D,) of those that are there; 0 for none.
        squares: (D,) sum of the squared distances from that mean.
        smallest: (D,); infinite for none.
        largest: (D,); likewise.
    """

    count: Numbers
    n_missing: Numbers
    mean: Numbers
    squares: Numbers
    smallest: Numbers
    largest: Numbers

    @classmethod
    def none(cls, n_columns: int) -> ColumnSums:
        """Return what is known before the first row."""
        zeros = np.zeros(n_columns)
        return cls(zeros, zeros, zeros, zeros, np.full(n_columns, np.inf), np.full(n_columns, -np.inf))

    @classmethod
    def of(cls, values: npt.NDArray[np.floating]) -> ColumnSums:
        """Return what (n, D) rows say, in two passes over them, so that no digit is lost to a large mean."""
        if not len(values):
            return cls.none(values.shape[1])
        block = values.astype(np.float64)
        is_missing = np.isnan(block)
        if not is_missing.any():
            mean = block.mean(axis=0)
            smallest, largest = block.min(axis=0), block.max(axis=0)
            block -= mean
            squares = np.einsum("ij,ij->j", block, block)
            return cls(np.full(len(mean), float(len(block))), np.zeros(len(mean)), mean, squares, smallest, largest)
        count = (~is_missing).sum(axis=0).astype(np.float64)
        smallest = np.where(is_missing, np.inf, block).min(axis=0)
        largest = np.where(is_missing, -np.inf, block).max(axis=0)
        block[is_missing] = 0.0
        mean = block.sum(axis=0) / np.maximum(count, 1.0)
        block -= mean
        block[is_missing] = 0.0
        squares = np.einsum("ij,ij->j", block, block)
        return cls(count, len(block) - count, mean, squares, smallest, largest)

    def merge(self, other: ColumnSums) -> ColumnSums:
        """Return what both parts say together (Chan, Golub, LeVeque 1979, formula 2.1b)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1.0)
        difference = other.mean - self.mean
        return ColumnSums(
            count,
            self.n_missing + other.n_missing,
            self.mean + difference * share,
            self.squares + other.squares + difference * difference * self.count * share,
            np.minimum(self.smallest, other.smallest),
            np.maximum(self.largest, other.largest),
        )

    def std(self) -> Numbers:
        """Return the (D,) standard deviations, divisor n; 1 for columns of equal values, which stay as they are."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        return np.where(self.is_constant() | (spread == 0.0), 1.0, spread)

    def is_constant(self) -> npt.NDArray[np.bool_]:
        """Return which columns have no two different values."""
        return np.asarray(self.smallest >= self.largest)

    def to_lists(self) -> dict[str, list[float]]:
        """Return the numbers for JSON, which keeps each digit."""
        return {item.name: getattr(self, item.name).tolist() for item in fields(self)}

    @classmethod
    def from_lists(cls, lists: dict[str, Any]) -> ColumnSums:
        """Return what ``to_lists`` wrote."""
        return cls(**{name: np.array(values, np.float64) for name, values in lists.items()})


def merged(parts: Iterable[ColumnSums], n_columns: int) -> ColumnSums:
    """Return what all parts say together."""
    return reduce(ColumnSums.merge, parts, ColumnSums.none(n_columns))
