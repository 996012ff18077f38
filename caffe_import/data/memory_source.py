"""Arrays in memory as a source: what MemoryData and tests are fed from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from caffe_import.data.sample_source import Column, check_range
from caffe_import.net.layer_registry import Shape


class MemorySource:
    """Samples of arrays with equal first axes; the arrays are the caller's and are not written.

    Attributes:
        is_transformed: False: Caffe's MemoryData applies no transform to arrays it is fed.
    """

    is_transformed = False

    def __init__(self, columns: Sequence[Column]) -> None:
        """Keep the arrays.

        Raises:
            ValueError: No array, no sample, or different lengths.
        """
        if not columns or len({len(column) for column in columns}) != 1 or not len(columns[0]):
            msg = f"columns of lengths {[len(column) for column in columns]}: equal and at least one sample needed"
            raise ValueError(msg)
        self._columns = list(columns)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._columns[0])

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return each array's shape without its first axis."""
        return tuple(column.shape[1:] for column in self._columns)

    def read(self, start: int, count: int) -> list[Column]:
        """Return copies of the rows."""
        check_range(start, count, len(self))
        return [np.array(column[start : start + count]) for column in self._columns]

    def close(self) -> None:
        """Nothing is open."""
