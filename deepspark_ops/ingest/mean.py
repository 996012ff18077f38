"""The training set's mean: exact sums per shard, added up, divided once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from caffe_import.files.datum import Image

Sums = npt.NDArray[np.int64] | npt.NDArray[np.float64]


class PixelSums:
    """Adds images up, (C, H, W): int64 for uint8 pixels (exact), float64 for float32 ones.

    Caffe's compute_image_mean adds in float32, which loses digits beyond some ten thousand images.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: npt.DTypeLike) -> None:
        """Start at zero."""
        self.values: Sums = np.zeros(shape, np.int64) if dtype == np.uint8 else np.zeros(shape, np.float64)

    def add(self, image: Image) -> None:
        """Add one image of the shape."""
        np.add(self.values, image, out=self.values)


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
