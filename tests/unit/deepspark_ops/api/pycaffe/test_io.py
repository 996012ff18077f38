"""caffe.io against plain numpy loops."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

import deepspark_ops as ds
from deepspark_ops.api.pycaffe import io

RNG = np.random.default_rng(0)


def slow_preprocess(image: np.ndarray, mean: np.ndarray) -> np.ndarray:
    height, width, channels = image.shape
    out = np.zeros((channels, height, width), np.float32)
    for channel in range(channels):
        for y in range(height):
            for x in range(width):
                out[channel, y, x] = (image[y, x, channels - 1 - channel] * 255 - mean[channel]) * 0.5
    return out


def transformer() -> io.Transformer:
    configured = io.Transformer({"data": (10, 3, 5, 7)})
    configured.set_transpose("data", (2, 0, 1))
    configured.set_channel_swap("data", (2, 1, 0))
    configured.set_raw_scale("data", 255)
    configured.set_mean("data", np.array([104.0, 117.0, 123.0]))
    configured.set_input_scale("data", 0.5)
    return configured


def test_preprocess_is_caffes_order_and_deprocess_undoes_it() -> None:
    image = RNG.random((5, 7, 3)).astype(np.float32)
    preprocessed = transformer().preprocess("data", image)
    assert preprocessed.shape == (3, 5, 7)
    assert np.allclose(preprocessed, slow_preprocess(image, np.array([104, 117, 123])), atol=1e-4)
    assert np.allclose(transformer().deprocess("data", preprocessed[None]), image, atol=1e-5)


def test_image_of_another_size_becomes_the_input_s() -> None:
    image = np.full((40, 20, 3), 0.25, np.float32)
    assert np.allclose(transformer().preprocess("data", image)[0], (0.25 * 255 - 104) * 0.5, atol=1e-4)
    half = io.resize_image(np.array([[0.0, 1.0], [0.0, 1.0]])[..., None], (2, 4))
    assert np.allclose(half[0, :, 0], [0.0, 0.25, 0.75, 1.0])  # half-pixel centers


def test_load_image_is_rgb_from_0_to_1(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (4, 6, 3)).astype(np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), pixels[..., ::-1])
    image = io.load_image(tmp_path / "a.png")
    assert image.dtype == np.float32
    assert np.allclose(image, pixels / 255.0, atol=1e-7)
    assert io.load_image(tmp_path / "a.png", color=False).shape == (4, 6, 1)


def test_oversample_is_corners_center_and_mirrors() -> None:
    image = np.arange(5 * 6 * 1, dtype=np.float32).reshape(5, 6, 1)
    crops = io.oversample([image, image + 100], (3, 4))
    assert crops.shape == (20, 3, 4, 1)
    corners = [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]
    for at, (top, x0) in enumerate(corners):
        for y in range(3):
            for x in range(4):
                assert crops[at, y, x, 0] == image[top + y, x0 + x, 0]
                assert crops[5 + at, y, x, 0] == image[top + y, x0 + 3 - x, 0]
    assert np.array_equal(crops[10:], crops[:10] + 100)


def test_blobproto_there_and_back() -> None:
    values = RNG.random((1, 3, 2, 2)).astype(np.float32)
    assert np.array_equal(io.blobproto_to_array(io.array_to_blobproto(values)), values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda transformer_: transformer_.set_transpose("data", (0, 1)),
            r"order=\(0, 1\): allowed: each of \(0, 1, 2\) once",
        ),
        (
            lambda transformer_: transformer_.set_channel_swap("data", (2, 2, 0)),
            r"order=\(2, 2, 0\): allowed: each of the 3 channels",
        ),
        (
            lambda transformer_: transformer_.set_mean("data", np.zeros((3, 4, 4))),
            r"mean of shape \(3, 4, 4\): allowed: \(3,\) or",
        ),
        (
            lambda transformer_: transformer_.preprocess("label", np.zeros((5, 7, 3))),
            r"'label': no such input; allowed: data",
        ),
        (
            lambda transformer_: io.load_image("nowhere.png"),
            r"filename=nowhere.png: No such file or directory; allowed: an image file",
        ),
    ],
)
def test_mistakes(call: object, message: str) -> None:
    with pytest.raises(ds.ConfigError, match=message):
        call(transformer())  # type: ignore[operator]
