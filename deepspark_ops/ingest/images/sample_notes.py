"""Notes about samples on the way into a shard."""

from __future__ import annotations

from typing import Final
from zlib import adler32, crc32

import cv2
import numpy as np
import numpy.typing as npt

from caffe_import.files.datum import Image
from deepspark_ops.ingest.files.image_header import picture_size
from deepspark_ops.ingest.images.record_blocks import RecordBlock
from deepspark_ops.ingest.records import Positions

MOST_LOOKS: Final = 128
"""Number of a shard's samples, evenly spaced, with notes about size and values."""
_ROWS_OF_A_LOOK: Final = 64
"""Number of rows of a large image, evenly spaced, for mean and standard deviation."""


class NotedSamples:
    """The records that became samples, with size and values of some samples.

    Attributes:
        numbers: Numbers of the task's records that became samples, in order.
        digests: Digest of the content of each sample.
    """

    def __init__(self, positions: Positions) -> None:
        """Take the task's records."""
        self.numbers: list[int] = []
        self.digests: list[int] = []
        self._looked_at = frozenset(np.linspace(0, len(positions) - 1, MOST_LOOKS).astype(int).tolist())
        self._looks: list[tuple[int, int, int, float, float]] = []

    def note(self, block: RecordBlock) -> None:
        """Note some more samples."""
        first = len(self.numbers)
        self.numbers += block.numbers
        if block.are_pictures:
            self.digests += [crc32(record) << 32 | len(record) for record in block.records]  # as in record_digest
        else:
            self.digests += map(record_digest, block.records)
        for position, number in enumerate(block.numbers):
            if number in self._looked_at:
                self._look(first + position, block.records[position], block.images[position])

    def _look(self, row: int, record: Image | bytes, pixels: Image) -> None:
        size = picture_size(record) if isinstance(record, bytes) else record.shape[-2:]
        height, width = size or (0, 0)
        # (C H, W) of an image, (H, W C) of a picture.
        rows = pixels.reshape(len(pixels), -1) if isinstance(record, bytes) else pixels.reshape(-1, pixels.shape[-1])
        # As one channel: in a tenth of numpy's time.
        mean, std = cv2.meanStdDev(rows[:: max(1, len(rows) // _ROWS_OF_A_LOOK)])
        self._looks.append((row, height, width, float(mean.item()), float(std.item())))

    def looks(self) -> npt.NDArray[np.float64]:
        """Return (m, 5): row, height and width in the source (0 where unknown), mean and standard deviation."""
        return np.array(self._looks, np.float64).reshape(len(self._looks), 5)


def record_digest(record: Image | bytes) -> int:
    """Return 64 bits that are equal for equal records: CRC-32 and length of a file, CRC-32 and Adler-32 of pixels.

    Among a million different files, fewer than one dataset in a hundred has a pair of equal digests; for pixels far
    fewer. A cryptographic digest takes three times as long.
    """
    if isinstance(record, bytes):
        return crc32(record) << 32 | len(record) & 0xFFFFFFFF
    pixels = np.ascontiguousarray(record).data
    return crc32(pixels) << 32 | adler32(pixels)
