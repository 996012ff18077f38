"""Samples on their way into a shard: small ones wait for each other, as a call for many costs little more than for one.

Between two images of 32x32 the decoder fills the processor's caches with its own; sums and planes of sixty at a time
take a quarter of what they take one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from caffe_import.files.datum import Image, PixelDatums, chw_from_hwc, encode_datum, encode_datum_jpeg
from deepspark_ops.ingest.images.mean import PixelSums, Sums

StoredSample = tuple[int, int, Any]
"""(number, label, what a shard keeps: a Datum, or an image (C, H, W))."""
_MOST_BYTES: Final = 2**18
_MOST_SAMPLES: Final = 64


class WaitingSamples:
    """Collects samples of one shape, adds their pixels up, and hands them out in their order as a shard keeps them.

    All that wait are pictures, (H, W) or (H, W, C), as files are decoded, or all are images (C, H, W), as arrays are.

    Attributes:
        is_full: Hand them out before the next one.
        are_pictures: Of those that wait.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: str, *, as_datums: bool) -> None:
        """Begin with none.

        Args:
            shape: (C, H, W) of every sample.
            dtype: ``uint8`` or ``float32``.
            as_datums: Hand out serialized Datums, else images (C, H, W).
        """
        most = max(1, min(_MOST_SAMPLES, _MOST_BYTES // (shape[0] * shape[1] * shape[2])))
        self._most = most
        self._as_datums = as_datums
        self._datums = PixelDatums(shape, most) if as_datums and np.dtype(dtype) == np.uint8 else None
        self._sums = [PixelSums(shape, dtype, of_pictures=are_pictures) for are_pictures in (False, True)]
        self._waiting: list[tuple[int, int, bytes | None]] = []
        self._images: list[Image] = []
        self.is_full = False
        self.are_pictures = False

    def add(self, number: int, label: int, image: Image, compressed: bytes | None, *, is_picture: bool) -> None:
        """Let one more wait.

        Args:
            number: Given back with it.
            label: Likewise.
            image: Its pixels, contiguous.
            compressed: What the shard keeps in place of pixels.
            is_picture: As ``are_pictures`` of those that wait.
        """
        self._waiting.append((number, label, compressed))
        self._images.append(image)
        self.are_pictures = is_picture
        self.is_full = len(self._images) >= self._most

    def hand_out(self) -> list[StoredSample]:
        """Return all that wait; their Datums are overwritten by the next call."""
        if not self._images:
            return []
        waiting, images = self._waiting, self._images
        self._waiting, self._images, self.is_full = [], [], False
        block = _block(images)
        self._sums[self.are_pictures].add(block)
        if not self._as_datums:
            pixels = map(chw_from_hwc, images) if self.are_pictures else images
            return [(number, label, image) for (number, label, _), image in zip(waiting, pixels, strict=True)]
        if waiting[0][2] is not None:
            return [(number, label, encode_datum_jpeg(kept or b"", label)) for number, label, kept in waiting]
        if self._datums is None:
            pairs = zip(waiting, images, strict=True)
            return [(number, label, encode_datum(image, label)) for (number, label, _), image in pairs]
        datums = self._datums.of_pictures(block) if self.are_pictures else self._datums.of_images(block)
        return [(number, label, datums.with_label(i, label)) for i, (number, label, _) in enumerate(waiting)]

    def sums(self) -> Sums:
        """Return the sums of all samples handed out, (C, H, W)."""
        of_images, of_pictures = (sums.values() for sums in self._sums)
        return of_images + of_pictures


def _block(images: list[Image]) -> Image:
    """Return the images in one array, along a new first axis."""
    if len(images) == 1:
        return images[0][np.newaxis]
    # In half of np.stack's time.
    return np.frombuffer(b"".join([image.data for image in images]), images[0].dtype).reshape(
        len(images), *images[0].shape
    )
