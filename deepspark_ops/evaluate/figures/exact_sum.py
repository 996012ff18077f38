"""Sums of floats without rounding: the same bits in whatever order, batches and processes the values came."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

_MANTISSA_BITS = 53
_LOWEST_EXPONENT = -1074 - _MANTISSA_BITS
"""Below the exponent of every float64's lowest mantissa bit."""
_HALF_BITS = 26
_MOST_AT_ONCE = 1 << 24
"""So many halves of a mantissa, each below 2^27, add up in a float64 without rounding."""


class ExactSums:
    """``n`` sums of float64, each held as a whole number of units of a power of two. Not thread-safe.

    Example:
        >>> sums = ExactSums(1)
        >>> sums.add(np.array([[1e100], [1.0], [-1e100]]))
        >>> sums.floats()
        (1.0,)
    """

    def __init__(self, n: int = 1) -> None:
        """Start ``n`` sums at zero."""
        self._units = [0] * n

    def add(self, values: npt.NDArray[np.floating]) -> None:
        """Add rows of shape (rows, n), finite, float64 or narrower."""
        n = len(self._units)
        step = max(1, _MOST_AT_ONCE // n)
        for start in range(0, len(values), step):
            self._add(np.asarray(values[start : start + step], np.float64))

    def merge(self, other: ExactSums) -> None:
        """Add other sums."""
        self._units = [mine + other_units for mine, other_units in zip(self._units, other._units, strict=True)]

    def exact(self) -> tuple[Fraction, ...]:
        """Return the sums without rounding."""
        unit = Fraction(1, 1 << -_LOWEST_EXPONENT)
        return tuple(units * unit for units in self._units)

    def floats(self) -> tuple[float, ...]:
        """Return the sums, each rounded once."""
        return tuple(float(exact) for exact in self.exact())

    def _add(self, values: npt.NDArray[np.float64]) -> None:
        if not values.size:
            return
        fractions, exponents = np.frexp(values)
        mantissas = np.ldexp(fractions, _MANTISSA_BITS).astype(np.int64)  # whole, below 2^53
        lowest = int(exponents.min())
        width = int(exponents.max()) - lowest + 1
        n = values.shape[1]
        at = (np.arange(n, dtype=np.int64) * width + (exponents - lowest)).ravel()
        high = mantissas >> _HALF_BITS
        low = mantissas - (high << _HALF_BITS)
        highs = np.bincount(at, weights=high.ravel(), minlength=n * width)
        lows = np.bincount(at, weights=low.ravel(), minlength=n * width)
        for cell in np.flatnonzero((highs != 0) | (lows != 0)):
            column, above = divmod(int(cell), width)
            units = (int(highs[cell]) << _HALF_BITS) + int(lows[cell])
            self._units[column] += units << (lowest + above - _MANTISSA_BITS - _LOWEST_EXPONENT)
