"""Samples on the way into a shard: small samples wait, since a call for many samples costs little more than a single.

Between two images of 32x32 the decoder fills the processor's caches. Sums and planes of sixty images at a time take a
quarter of the time of single images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from caffe_import.files.datum import Image, PixelDatums, chw_from_hwc, encode_datum, encode_datum_jpeg
from deepspark_ops.ingest.images.mean import PixelSums, Sums
from deepspark_ops.ingest.images.record_blocks import RecordBlock
from deepspark_ops.shards.preprocessing import PixelRange

StoredSample = tuple[int, int, Any]
"""(number, label, stored form: a Datum, or an image (C, H, W))."""
_MOST_BYTES: Final = 2**18
_MOST_SAMPLES: Final = 64
_ALL_BYTES: Final = (0.0, 255.0)


class WaitingSamples:
    """Collects samples of one shape, sums the pixels, and hands out the stored forms in order.

    All waiting samples are pictures of decoded files, (H, W) or (H, W, C), or all are images of arrays, (C, H, W).

    Attributes:
        most: Largest number of waiting samples.
        pixel_range: Range of all samples handed out; infinities before the first sample.
        are_pictures: Whether the waiting samples are pictures.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: str, *, as_datums: bool) -> None:
        """Begin without a sample of ``shape`` (C, H, W) and of ``uint8`` or ``float32``.

        ``hand_out`` returns serialized Datums, without ``as_datums`` images (C, H, W).
        """
        most = max(1, min(_MOST_SAMPLES, _MOST_BYTES // (shape[0] * shape[1] * shape[2])))
        self.most = most
        self._as_datums = as_datums
        self._datums = PixelDatums(shape, most) if as_datums and np.dtype(dtype) == np.uint8 else None
        self._sums = [PixelSums(shape, dtype, of_pictures=are_pictures) for are_pictures in (False, True)]
        self._has_summed = [False, False]
        self.pixel_range: PixelRange = (math.inf, -math.inf)
        self._numbers: list[int] = []
        self._labels: list[int] = []
        self._images: list[Image] = []
        self._compressed: list[bytes | memoryview | None] = []
        self.are_pictures = False

    def add(self, block: RecordBlock, labels: Sequence[int]) -> None:
        """Add at most ``room`` samples, of the kind of the waiting samples, with a label for each."""
        self._numbers += block.numbers
        self._labels += labels
        self._images += block.images
        self._compressed += block.compressed
        self.are_pictures = block.are_pictures

    @property
    def room(self) -> int:
        """Number of samples that may be added."""
        return self.most - len(self._images)

    def hand_out(self) -> list[StoredSample]:
        """Return all waiting samples; the next call overwrites the Datums."""
        if not self._images:
            return []
        numbers, labels, images, compressed = self._numbers, self._labels, self._images, self._compressed
        self._numbers, self._labels, self._images, self._compressed = [], [], [], []
        block = _block(images)
        self._sums[self.are_pictures].add(block)
        self._has_summed[self.are_pictures] = True
        self._widen_range(block)
        stored: Iterable[Any]
        if not self._as_datums:
            stored = map(chw_from_hwc, images) if self.are_pictures else images
        elif compressed[0] is not None:
            stored = [
                encode_datum_jpeg(content or b"", label) for content, label in zip(compressed, labels, strict=True)
            ]
        elif self._datums is None:
            stored = map(encode_datum, images, labels)
        else:
            datums = self._datums.of_pictures(block) if self.are_pictures else self._datums.of_images(block)
            stored = datums.with_labels(labels)
        return list(zip(numbers, labels, stored, strict=True))

    def _widen_range(self, block: Image) -> None:
        if block.dtype == np.uint8 and self.pixel_range == _ALL_BYTES:
            return
        least, largest = self.pixel_range
        # Missing numbers, NaN, are ignored.
        self.pixel_range = (
            min(least, float(np.fmin.reduce(block, None))),
            max(largest, float(np.fmax.reduce(block, None))),
        )

    def sums(self) -> Sums:
        """Return the sums of all samples handed out, (C, H, W)."""
        images, pictures = self._sums
        if not self._has_summed[True]:
            return images.values()
        return pictures.values() + images.values() if self._has_summed[False] else pictures.values()


def _block(images: list[Image]) -> Image:
    """Return the images in one array, along a new first axis."""
    if len(images) == 1:
        return images[0][np.newaxis]
    # In half of np.stack's time.
    return np.frombuffer(b"".join([image.data for image in images]), images[0].dtype).reshape(
        len(images), *images[0].shape
    )
