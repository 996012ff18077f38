"""The few samples with the largest or smallest of a value, among any number of samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class NamedSample:
    """A sample with a value.

    Attributes:
        index: Position in the order of reading.
        value: Of the sample.
    """

    index: int
    value: float


class Extremes:
    """Keeps the samples with the ``most`` largest values; among equal values the earlier sample. Not thread-safe.

    Example:
        >>> kept = Extremes(1)
        >>> kept.add(np.array([2.0, 5.0, 5.0]), start=10)
        >>> kept.result()
        (NamedSample(index=11, value=5.0),)
    """

    def __init__(self, most: int, *, wants_smallest: bool = False) -> None:
        """Start at nothing; ``wants_smallest``: keep the smallest instead."""
        self._most = most
        self._sign = 1.0 if wants_smallest else -1.0
        self._values = np.zeros(0)
        self._indices = np.zeros(0, np.int64)

    def add(self, values: npt.NDArray[np.floating], *, start: int) -> None:
        """See values, shape (n,), of samples from position ``start`` on."""
        self._keep(np.asarray(values, np.float64), start + np.arange(len(values), dtype=np.int64))

    def merge(self, other: Extremes) -> None:
        """Take the samples of another object with the same options."""
        self._keep(other._values, other._indices)

    def result(self) -> tuple[NamedSample, ...]:
        """Return the samples, the most extreme first."""
        return tuple(
            NamedSample(int(index), float(value)) for index, value in zip(self._indices, self._values, strict=True)
        )

    def _keep(self, values: npt.NDArray[np.float64], indices: npt.NDArray[np.int64]) -> None:
        values = np.concatenate([self._values, values])
        indices = np.concatenate([self._indices, indices])
        order = np.lexsort((indices, self._sign * values))[: self._most]
        self._values, self._indices = values[order], indices[order]
