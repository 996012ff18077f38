"""The mean against plain division in float64."""

import numpy as np
import pytest

from deepspark_ops.ingest.images.mean import PixelSums, mean_image, mean_values

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 5))


def sums_of(images: np.ndarray, together: int = 1) -> np.ndarray:
    sums = PixelSums((3, 4, 5), images.dtype)
    for start in range(0, len(images), together):
        sums.add(images[start : start + together])
    return sums.values()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_mean_of_parts_is_the_mean_of_all(dtype):
    images = IMAGES.astype(dtype)
    parts = [sums_of(images[:7]), sums_of(images[7:])]
    expected = images.astype(np.float64).mean(axis=0)
    assert mean_image(parts, 50).dtype == np.float32
    np.testing.assert_allclose(mean_image(parts, 50), expected, rtol=1e-7)
    np.testing.assert_allclose(mean_values(parts, 50), expected.mean(axis=(1, 2)), rtol=1e-7)


@pytest.mark.parametrize("together", [1, 3, 50])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_and_pictures_one_by_one_or_together_have_the_same_sums(together, channels):
    images = np.concatenate([IMAGES[:, :channels]] * 6).astype(np.uint8)
    pictures = images[:, 0] if channels == 1 else np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    of_images = PixelSums((channels, 4, 5), "uint8")
    of_pictures = PixelSums((channels, 4, 5), "uint8", of_pictures=True)
    for start in range(0, 300, together):
        of_images.add(images[start : start + together])
        of_pictures.add(pictures[start : start + together])
        of_images.values()  # may be asked for in between
    expected = images.astype(np.int64).sum(axis=0)
    for sums in (of_images, of_pictures):
        assert sums.values().dtype == np.int64
        np.testing.assert_array_equal(sums.values(), expected)


@pytest.mark.parametrize("together", [1, 8])
def test_uint8_sums_do_not_overflow(together):
    sums = PixelSums((1, 1, 1), np.uint8)
    for _ in range(1000):
        sums.add(np.full((together, 1, 1, 1), 255, np.uint8))
    assert sums.values().item() == 255_000 * together
