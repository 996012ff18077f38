"""Inputs of a notebook as files: pixels keep colours and values, paths their order, numbers their rows."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest

import deepspark_ops as ds
from deepspark_ops.api.results.dataset import Samples
from deepspark_ops.api.results.prediction_inputs import prediction_input

RNG = np.random.default_rng(2)


def pictures_of(options: object, scratch: Path) -> list[np.ndarray]:
    assert options == {"input": scratch / "inputs.parquet", "input_format": "parquet", "image_column": "image"}
    column = pd.read_parquet(scratch / "inputs.parquet").image
    return [cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED) for content in column]


def test_colours_of_rgb_arrays_are_kept(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (3, 4, 5, 3)).astype(np.uint8)
    for pictures in (pixels, list(pixels)):
        read = pictures_of(prediction_input(pictures, tmp_path), tmp_path)
        assert all(np.array_equal(picture[..., ::-1], rgb) for picture, rgb in zip(read, pixels, strict=True))


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 5, 1)])
def test_gray_arrays(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = RNG.integers(0, 256, shape).astype(np.uint8)
    assert np.array_equal(pictures_of(prediction_input(pixels, tmp_path), tmp_path), pixels.reshape(2, 4, 5))


def test_samples_of_a_dataset_are_not_scaled_again(tmp_path: Path) -> None:
    values = RNG.integers(0, 256, (2, 3, 4, 5)).astype(np.uint8)
    options = dict(prediction_input(Samples(values, np.zeros(2), ("a", "b"), "d"), tmp_path))
    assert options.pop("max_pixel") == 255
    read = pictures_of(options, tmp_path)
    assert all(np.array_equal(picture.transpose(2, 0, 1), bgr) for picture, bgr in zip(read, values, strict=True))


def test_numbers_are_rows_of_a_column(tmp_path: Path) -> None:
    numbers = RNG.normal(size=(3, 4)).astype(np.float32)
    options = prediction_input(numbers, tmp_path)
    assert options["feature_columns"] == "features"
    assert np.array_equal(np.stack(pd.read_parquet(tmp_path / "inputs.parquet").features), numbers.astype(np.float64))


def test_paths_keep_their_order_and_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prediction_input("folder", tmp_path) == {"input": tmp_path / "folder"}
    options = prediction_input(["b.png", Path("a.png")], tmp_path)
    assert options["image_column"] == options["id_column"] == "path"
    read = pd.read_parquet(tmp_path / "inputs.parquet").path.tolist()
    assert read == [str(tmp_path / "b.png"), str(tmp_path / "a.png")]


def test_relative_paths_of_a_frame_start_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert prediction_input(pd.DataFrame({"path": ["a.png"]}), tmp_path)["root_folder"] == tmp_path


@pytest.mark.parametrize(
    ("images", "shown"),
    [
        (np.zeros((2, 4, 4), np.float32), r"array of shape \(2, 4, 4\), float32"),
        (np.zeros((2, 4, 4, 2), np.uint8), r"array of shape \(2, 4, 4, 2\), uint8"),
        ([np.zeros((2, 2), np.uint8), np.zeros((3, 3), np.uint8)], r"arrays of different shapes"),
        (3, r"int 3"),
        ((), r"tuple \(\)"),
    ],
)
def test_others_are_refused_with_what_is_allowed(tmp_path: Path, images: object, shown: str) -> None:
    with pytest.raises(ds.ConfigError, match=rf"images=.*{shown}.*allowed: a path or several, a DataFrame, pixels"):
        prediction_input(images, tmp_path)
    assert list(tmp_path.iterdir()) == []
