"""What is noted of samples as they pass by on their way into a shard."""

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
"""So many samples of a shard, evenly spaced, are looked at more closely."""
_ROWS_OF_A_LOOK: Final = 64
"""So many rows of a large image, evenly spaced, are enough for its mean and standard deviation."""


class NotedSamples:
    """Which records became samples, and size and values of some of them.

    Attributes:
        numbers: Of the task's records, those that became samples, in their order.
        digests: Of each one's content.
        n_bytes: Of these, as read: compressed images or pixels.
    """

    def __init__(self, positions: Positions) -> None:
        """Take the task's records."""
        self.numbers: list[int] = []
        self.digests: list[int] = []
        self.n_bytes = 0
        self._wanted = frozenset(np.linspace(0, len(positions) - 1, MOST_LOOKS).astype(int).tolist())
        self._looks: list[tuple[int, int, int, float, float]] = []

    def note(self, block: RecordBlock) -> None:
        """Note some more samples."""
        first = len(self.numbers)
        self.numbers += block.numbers
        if block.are_pictures:
            self.digests += [crc32(record) << 32 | len(record) for record in block.records]  # as record_digest does
            self.n_bytes += sum(map(len, block.records))
        else:
            self.digests += map(record_digest, block.records)
            self.n_bytes += sum(record.nbytes for record in block.records)
        for place, number in enumerate(block.numbers):
            if number in self._wanted:
                self._look(first + place, block.records[place], block.images[place])

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
    """Return 64 bits that are equal for equal records: a CRC-32, with the length of files, an Adler-32 of pixels.

    Of a million different files less than one pair in a hundred datasets agrees, of pixels far fewer; a cryptographic
    digest takes three times as long, which small images would feel.
    """
    if isinstance(record, bytes):
        return crc32(record) << 32 | len(record) & 0xFFFFFFFF
    pixels = np.ascontiguousarray(record).data
    return crc32(pixels) << 32 | adler32(pixels)
