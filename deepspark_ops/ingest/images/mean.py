"""The training set's mean: exact sums per shard, added up, divided once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from caffe_import.files.datum import Image

Sums = npt.NDArray[np.int64] | npt.NDArray[np.float64]
_FIT_16_BITS = 65_535 // 255
"""Sums of so many bytes."""


class PixelSums:
    """Adds images up: int64 for uint8 pixels (exact), float64 for float32 ones.

    Caffe's compute_image_mean adds in float32, which loses digits beyond some ten thousand images.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: npt.DTypeLike, *, of_pictures: bool = False) -> None:
        """Start at zero.

        Args:
            shape: (C, H, W).
            dtype: Of the images, uint8 or float32.
            of_pictures: Images come as OpenCV has them, (H, W) or (H, W, C).
        """
        self._of_pictures = of_pictures
        channels, height, width = shape
        held = (height, width, channels) if of_pictures else shape
        is_bytes = np.dtype(dtype) == np.uint8
        self._values: Sums = np.zeros(held, np.int64) if is_bytes else np.zeros(held, np.float64)
        # Of large images, the last ones: numpy adds bytes to 16 bits in a quarter of the time that it takes for 64.
        self._part = np.zeros(held, np.uint16) if is_bytes else None
        self._room = _FIT_16_BITS

    def add(self, images: Image) -> None:
        """Add images, (N, C, H, W), or pictures, (N, H, W) or (N, H, W, C); bytes at most 65,536 at a time."""
        if self._part is None:
            for image in images:
                np.add(self._values, image.reshape(self._values.shape), out=self._values)
        elif len(images) > 1:
            sums = cv2.reduce(images.reshape(len(images), -1), 0, cv2.REDUCE_SUM, dtype=cv2.CV_32S)
            np.add(self._values, sums.reshape(self._values.shape), out=self._values)
        else:
            np.add(self._part, images.reshape(self._part.shape), out=self._part)
            self._room -= 1
            if not self._room:
                self._carry(self._part)

    def values(self) -> Sums:
        """Return the sums so far, (C, H, W)."""
        if self._part is not None and self._room < _FIT_16_BITS:
            self._carry(self._part)
        if not self._of_pictures:
            return self._values
        image: Any = np.ascontiguousarray(self._values.transpose(2, 0, 1))
        return cast(Sums, image)

    def _carry(self, part: npt.NDArray[np.uint16]) -> None:
        np.add(self._values, part, out=self._values)
        part.fill(0)
        self._room = _FIT_16_BITS


def mean_image(sums: Iterable[Sums], n_samples: int) -> npt.NDArray[np.float32]:
    """Return the mean per pixel, (C, H, W), from the sums of disjoint parts."""
    return np.asarray(_total(sums) / n_samples, np.float32)


def mean_values(sums: Iterable[Sums], n_samples: int) -> tuple[float, ...]:
    """Return the mean per channel, in the channels' order (BGR), rounded to float32 as Caffe keeps them."""
    per_channel = _total(sums).astype(np.float64).mean(axis=(1, 2)) / n_samples
    return tuple(float(np.float32(value)) for value in per_channel)


def _total(sums: Iterable[Sums]) -> Sums:
    total: Sums = np.sum(np.stack(list(sums)), axis=0)
    return total
