from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe_import.data.transform import TransformOptions
from caffe_import.data.window_batches import WindowBatches, open_windows
from caffe_import.data.window_file import Window, WindowFile, read_window_file
from caffe_import.errors import CaffeImportError
from caffe_import.files.mean_file import write_mean
from caffe_import.files.prototxt import parse_net
from caffe_import.proto import caffe_pb2
from tests.reference.slow_window_data import warped_window

ROWS, COLUMNS = 24, 30


def image_of(seed: int = 0) -> np.ndarray:
    """A smooth picture: OpenCV's fixed-point rounding stays below one grey level."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 255, (5, 5, 3)).astype(np.uint8)
    return cv2.resize(coarse, (COLUMNS, ROWS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in range(2):
        cv2.imwrite(str(tmp_path / f"{index}.png"), image_of(index))
    (tmp_path / "windows.txt").write_text(
        "# 0\n0.png\n3\n24\n30\n3\n7 0.9 2 3 12 13\n2 0.5 0 0 29 23\n4 0.2 1 1 5 5\n"
        "# 1\n1.png 3 24 30 2\n3 0.05 20 10 25 22\n1 0.45 0 0 4 4\n"
    )
    return tmp_path


def layer_of(window: str = "", transform: str = "crop_size: 10") -> caffe_pb2.LayerParameter:
    return parse_net(
        f"""layer {{ name: "windows" type: "WindowData" top: "data" top: "label"
        transform_param {{ {transform} }}
        window_data_param {{ batch_size: 8 bg_threshold: 0.4 {window} }} }}"""
    ).layer[0]


def opened(folder: Path, window: str = "", transform: str = "crop_size: 10") -> WindowBatches:
    layer = layer_of(window, transform)
    layer.window_data_param.source = layer.window_data_param.source or "windows.txt"
    layer.window_data_param.root_folder = f"{folder}/"
    return open_windows(layer, folder)


def test_windows_are_sorted_by_overlap_and_background_loses_its_class(folder: Path) -> None:
    window_file = read_window_file(folder / "windows.txt", fg_threshold=0.5, bg_threshold=0.4)
    assert window_file.images == ("0.png", "1.png")
    assert window_file.foreground == (Window(0, 7, 2, 3, 12, 13), Window(0, 2, 0, 0, 29, 23))
    assert window_file.background == (Window(0, 0, 1, 1, 5, 5), Window(1, 0, 20, 10, 25, 22))  # 0.45 is neither


@given(
    st.tuples(st.integers(0, COLUMNS - 1), st.integers(0, ROWS - 1), st.integers(0, COLUMNS), st.integers(0, ROWS)),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60)
def test_each_window_is_what_caffes_loop_makes(
    rectangle: tuple[int, int, int, int], context_pad: int, square: bool, mirrored: bool
) -> None:
    x1, y1 = rectangle[:2]
    corners = (x1, y1, min(COLUMNS - 1, x1 + rectangle[2]), min(ROWS - 1, y1 + rectangle[3]))
    mean = np.random.default_rng(1).normal(100, 20, (3, 14, 14)).astype(np.float32)
    image = image_of().transpose(2, 0, 1)
    options = TransformOptions(scale=0.5, crop_size=12, mean=mean)
    batches = WindowBatches(WindowFile(("x",), (), ()), "", options, 1, 0, context_pad, square, "windows")
    batches._images[0] = image  # no file behind it
    out = np.zeros((3, 12, 12), np.float32)
    batches.place(Window(0, 1, *corners), mirrored=mirrored, out=out)
    expected = warped_window(
        image, corners, crop=12, context_pad=context_pad, square=square, mirrored=mirrored, mean=mean, scale=0.5
    )
    np.testing.assert_array_equal(out == 0, expected == 0)  # the padding lies in the same places
    np.testing.assert_allclose(out, expected, atol=0.5)  # one grey level times scale


def test_a_batch_has_background_then_the_foregrounds_share_and_repeats_by_its_key(folder: Path) -> None:
    batches = opened(folder, "fg_fraction: 0.3 context_pad: 2", "crop_size: 10 mirror: true mean_value: 100")
    data, labels = batches.draw(np.random.default_rng(5))
    assert data.shape == (8, 3, 10, 10)
    assert labels[:6].tolist() == [0.0] * 6  # int(8 * 0.3) = 2 of foreground
    assert set(labels[6:].tolist()) <= {7.0, 2.0}
    repeated, _ = batches.draw(np.random.default_rng(5))
    np.testing.assert_array_equal(data, repeated)
    assert not np.array_equal(data, batches.draw(np.random.default_rng(6))[0])


def test_mirror_is_drawn_for_each_window(folder: Path) -> None:
    batches = opened(folder, "fg_fraction: 1", "crop_size: 10 mirror: true")
    images = {image.tobytes() for _ in range(10) for image in batches.draw(np.random.default_rng(_))[0]}
    assert len(images) == 4  # two windows, both ways


def test_the_scale_is_the_layers_own_as_in_caffe(folder: Path) -> None:
    plain = opened(folder, "fg_fraction: 1").draw(np.random.default_rng(0))[0]
    other = opened(folder, "fg_fraction: 1", "crop_size: 10 scale: 9").draw(np.random.default_rng(0))[0]
    scaled = opened(folder, "fg_fraction: 1 scale: 0.5").draw(np.random.default_rng(0))[0]
    np.testing.assert_array_equal(other, plain)
    np.testing.assert_array_equal(scaled, plain / 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the window file is empty"),
        ("# 1 a.png", "image index 1; the indices count from 0, expected 0"),
        ("a.png", '"a.png" found where "# 0" was expected'),
        ("# 0 a.png 1 5 5 0", "image a.png has 1 channels; windows are read in colour, allowed: 3"),
        ("# 0 a.png 3 5 5\n1\n1 high 0 0 1 1", """:3: "high" is not a number; expected a window's overlap"""),
        ("# 0 a.png 3 5 5 1 0 0.9 0 0 1 1", "class 0 with overlap 0.9; a foreground class must be above 0"),
        ("# 0 a.png 3 5 5 2 1 0.9 0 0 1 1", "the file ends where a window's class was expected"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "windows.txt").write_text(text)
    with pytest.raises(CaffeImportError) as raised:
        read_window_file(tmp_path / "windows.txt", fg_threshold=0.5, bg_threshold=0.5)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("window", "transform", "message"),
    [
        ('source: "no.txt"', "crop_size: 10", "no.txt: no such window file"),
        ("fg_threshold: 2", "crop_size: 10", "has no foreground window, a batch needs 2"),
        ("context_pad: 5", "crop_size: 10", "context_pad=5 leaves nothing of crop_size=10; allowed: below 5"),
        ("", 'crop_size: 10 mean_file: "mean.binaryproto"', "mean_file holds shape (3, 8, 8)"),
    ],
)
def test_options_that_do_not_fit_are_refused(folder: Path, window: str, transform: str, message: str) -> None:
    write_mean(folder / "mean.binaryproto", np.zeros((3, 8, 8), np.float32))
    with pytest.raises(CaffeImportError) as raised:
        opened(folder, window, transform)
    assert message in str(raised.value)


def test_missing_images_and_windows_outside_them_are_named(folder: Path) -> None:
    (folder / "windows.txt").write_text("# 0 2.png 3 24 30 1 1 0.9 0 0 5 5")
    with pytest.raises(CaffeImportError, match=r"image .*2\.png of the window file: No such file"):
        opened(folder, "fg_fraction: 1")
    (folder / "windows.txt").write_text("# 0 0.png 3 24 30 1 1 0.1 25 0 35 5")
    with pytest.raises(CaffeImportError, match=r"is outside its image 0\.png"):
        opened(folder, "fg_fraction: 0").draw(np.random.default_rng(0))
