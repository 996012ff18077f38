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
        self._held = (height, width, channels) if of_pictures else shape
        self._is_bytes = np.dtype(dtype) == np.uint8
        # Both are made when they are needed: of large images they are as large as a few of these.
        self._values: Sums | None = None
        # Of large images, the last ones: numpy adds bytes to 16 bits in a quarter of the time that it takes for 64.
        self._part: npt.NDArray[np.uint16] | None = None
        self._room = _FIT_16_BITS

    def add(self, images: Image) -> None:
        """Add images, (N, C, H, W), or pictures, (N, H, W) or (N, H, W, C); bytes at most 65,536 at a time."""
        if not self._is_bytes:
            values = self._values_so_far(np.float64)
            for image in images:
                np.add(values, image.reshape(self._held), out=values)
        elif len(images) > 1:
            sums = cv2.reduce(images.reshape(len(images), -1), 0, cv2.REDUCE_SUM, dtype=cv2.CV_32S)
            values = self._values_so_far(np.int64)
            np.add(values, sums.reshape(self._held), out=values)
        elif self._part is None:
            self._part = images.reshape(self._held).astype(np.uint16)
            self._room = _FIT_16_BITS - 1
        else:
            np.add(self._part, images.reshape(self._held), out=self._part)
            self._room -= 1
            if not self._room:
                self._carry()

    def values(self) -> Sums:
        """Return the sums so far, (C, H, W)."""
        self._carry()
        values: Any = self._values_so_far(np.int64 if self._is_bytes else np.float64)
        return cast(Sums, np.ascontiguousarray(values.transpose(2, 0, 1))) if self._of_pictures else cast(Sums, values)

    def _values_so_far(self, dtype: npt.DTypeLike) -> Any:
        if self._values is None:
            self._values = np.zeros(self._held, dtype)
        return self._values

    def _carry(self) -> None:
        if self._part is None:
            return
        if self._values is None:
            self._values = self._part.astype(np.int64)
        else:
            np.add(self._values, self._part, out=self._values)
        self._part = None


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
