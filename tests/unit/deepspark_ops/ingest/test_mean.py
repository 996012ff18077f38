"""The mean against plain division in float64."""

import numpy as np
import pytest

from deepspark_ops.ingest.mean import PixelSums, mean_image, mean_values

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 5))


def sums_of(images: np.ndarray) -> np.ndarray:
    sums = PixelSums((3, 4, 5), images.dtype)
    for image in images:
        sums.add(image)
    return sums.values


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_mean_of_parts_is_the_mean_of_all(dtype):
    images = IMAGES.astype(dtype)
    parts = [sums_of(images[:7]), sums_of(images[7:])]
    expected = images.astype(np.float64).mean(axis=0)
    assert mean_image(parts, 50).dtype == np.float32
    np.testing.assert_allclose(mean_image(parts, 50), expected, rtol=1e-7)
    np.testing.assert_allclose(mean_values(parts, 50), expected.mean(axis=(1, 2)), rtol=1e-7)


def test_channels_stay_in_order():
    image = np.zeros((3, 2, 2), np.uint8)
    image[2] = 200
    sums = PixelSums((3, 2, 2), np.uint8)
    sums.add(image)
    assert mean_values([sums.values], 1) == (0.0, 0.0, 200.0)


def test_uint8_sums_do_not_overflow():
    sums = PixelSums((1, 1, 1), np.uint8)
    for _ in range(1000):
        sums.add(np.full((1, 1, 1), 255, np.uint8))
    assert sums.values.item() == 255_000
