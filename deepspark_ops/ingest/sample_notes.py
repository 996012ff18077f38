"""What is noted of samples as they pass by on their way into a shard, beside the loop that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.files.image_header import picture_size
from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError

MOST_LOOKS: Final = 128
"""So many samples of a shard, evenly spaced, are looked at more closely."""
Sample = TypeVar("Sample", bound=tuple[Any, ...])


class NotedSamples:
    """Notes which records became samples, and size and values of some of them.

    Attributes:
        numbers: Of the task's records, those that became samples, in their order.
    """

    def __init__(self, positions: Positions, read: ReadRecord) -> None:
        """Take the task's records; ``read`` reads one again for its size, of the file's header alone."""
        self.numbers: list[int] = []
        self._read = read
        self._wanted = set(np.linspace(0, len(positions) - 1, MOST_LOOKS).astype(int).tolist())
        self._looks: list[tuple[int, int, float, float]] = []

    def passing(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Yield samples as they are; each begins with its record's number and ends with pixels, compressed bytes."""
        for sample in samples:
            number = sample[0]
            if number in self._wanted:
                pixels = sample[-2]
                self._looks.append((len(self.numbers), number, float(pixels.mean()), float(pixels.std())))
            self.numbers.append(number)
            yield sample

    def looks(self) -> npt.NDArray[np.float64]:
        """Return (m, 5): row, height and width in the source (0 where unknown), mean and standard deviation."""
        rows = [(row, *self._size(number), mean, std) for row, number, mean, std in self._looks]
        return np.array(rows, np.float64).reshape(len(rows), 5)

    def _size(self, number: int) -> tuple[int, int]:
        try:
            record = self._read(number)
        except RecordError:
            return 0, 0
        if isinstance(record, bytes):
            return picture_size(record) or (0, 0)
        return record.shape[-2], record.shape[-1]
