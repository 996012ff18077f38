"""Image lists: what a line means, and errors that name the line or the file."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from caffe_import.data.image_source import (
    BadLine,
    ImageSource,
    ListedImage,
    parse_image_list,
    read_image_list,
)
from caffe_import.errors import DataSourceError
from tests.paths import FIXTURES

IMAGES = FIXTURES / "caffe" / "data" / "img"


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("a.jpg 3", ListedImage("a.jpg", 3)),
        ("  a.jpg\t3  ", ListedImage("a.jpg", 3)),
        ("two words.jpg 12", ListedImage("two words.jpg", 12)),
        ("a.jpg -1", ListedImage("a.jpg", -1)),
        ("a.jpg", BadLine(1, "a.jpg")),
        ("3", BadLine(1, "3")),
        ("a.jpg 3.5", BadLine(1, "a.jpg 3.5")),
        ("a.jpg cat", BadLine(1, "a.jpg cat")),
    ],
)
def test_line_is_path_and_label(line, entry):
    assert parse_image_list(line) == [entry]


def test_blank_lines_and_windows_line_ends_do_not_count():
    assert parse_image_list("a 1\r\n\r\n  \nb 2\r\n") == [ListedImage("a", 1), ListedImage("b", 2)]
    assert parse_image_list("\n\nbad\n") == [BadLine(3, "bad")]


def test_images_of_several_sizes_keep_their_sizes():
    source = ImageSource([ListedImage("s0.png", 0), ListedImage("s1.png", 1)], f"{IMAGES}/", is_color=True)
    images, labels = source.read(0, 2)
    assert [image.shape for image in images] == [(3, 9, 15), (3, 11, 14)]
    for index, image in enumerate(images):
        np.testing.assert_array_equal(source.read(index, 1)[0][0], image)
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("listed_in", "named"), [(None, "the image list"), (Path("sets/train.txt"), "the image list sets/train.txt")]
)
def test_missing_image_names_the_line_and_the_list(listed_in, named):
    images = [ListedImage("g0.png", 0), ListedImage("gone.png", 1)]
    source = ImageSource(images, f"{IMAGES}/", is_color=False, listed_in=listed_in)
    with pytest.raises(DataSourceError, match=rf"gone\.png: No such file or directory; line 2 of {named}$"):
        source.read(1, 1)


def test_labels_and_gray(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.full((2, 3, 3), 50, np.uint8))
    images, labels = ImageSource([ListedImage("a.png", 9)], f"{tmp_path}/", is_color=False).read(0, 1)
    assert images.tolist() == [[[[50] * 3] * 2]]
    assert (labels.tolist(), labels.dtype) == ([9], np.int64)


def test_bad_list_names_file_and_line(tmp_path):
    path = tmp_path / "list.txt"
    with pytest.raises(DataSourceError, match="no such image list"):
        read_image_list(path)
    path.write_text("a.jpg 1\nb.jpg\n")
    with pytest.raises(DataSourceError) as caught:
        read_image_list(path)
    assert str(caught.value) == f'{path}:2: "b.jpg" is not "path label"'
    path.write_text("\n")
    with pytest.raises(DataSourceError, match="the image list is empty"):
        read_image_list(path)
