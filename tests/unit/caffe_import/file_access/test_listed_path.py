"""Root folder and name of a list are one text, as in Caffe (image_data_layer.cpp: root_folder + lines_[i].first)."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.file_access.allowed_roots import AllowedRoots, allowed_roots_used
from caffe_import.file_access.relative_paths import listed_path


@pytest.mark.parametrize(
    ("root", "name", "expected"),
    [
        ("{0}/data/", "a.png", "{0}/data/a.png"),
        ("{0}/data/", "/a.png", "{0}/data//a.png"),  # os.path.join would give /a.png
        ("{0}/data/img_", "1.png", "{0}/data/img_1.png"),
        ("{0}/data", "a.png", "{0}/data/a.png"),  # Caffe's text names no file
        ("{0}/data", "b.png", "{0}/datab.png"),
        ("{0}/data/", "{0}/other.png", "{0}/other.png"),  # an absolute name under a folder that stands for the cwd
        ("", "{0}/other.png", "{0}/other.png"),
        ("{0}/data/", "none.png", "{0}/data/none.png"),
        ("{0}/data", "none.png", "{0}/data/none.png"),
        ("{0}/data/img_", "none.png", "{0}/data/img_none.png"),
    ],
)
def test_the_text_goes_first_then_the_path(root: str, name: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for file in ("data/a.png", "data/b.png", "data/img_1.png", "datab.png", "other.png"):
        (tmp_path / file).touch()
    assert listed_path(root.format(tmp_path), name.format(tmp_path)) == expected.format(tmp_path)


def test_a_file_that_may_not_be_read_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for file in ("data/a.png", "dataa.png"):
        (tmp_path / file).touch()
    with allowed_roots_used(AllowedRoots.of([tmp_path / "data"])):
        assert listed_path(f"{tmp_path}/data", "a.png") == f"{tmp_path}/data/a.png"
