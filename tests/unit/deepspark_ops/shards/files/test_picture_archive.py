"""Pictures in a single file: the pictures that come back, and refused files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from deepspark_ops.shards.files.picture_archive import MOST_BYTES, EncodedPicture, PictureArchive, write_pictures
from deepspark_ops.shards.thumbnail import encoded, small_picture, to_picture

PICTURES = {7: EncodedPicture("image/png", b"seven"), 12: EncodedPicture("image/jpeg", b"twelve")}


def decoded(picture: EncodedPicture) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(picture.content, np.uint8), cv2.IMREAD_UNCHANGED)


def test_pictures_come_back_and_only_those_that_are_asked_for(tmp_path: Path) -> None:
    write_pictures(tmp_path / "p.zip", PICTURES, "run a")
    archive = PictureArchive(tmp_path / "p.zip", "run a")
    assert sorted(archive.numbers) == [7, 12]
    assert archive.read([12, 99]) == {12: PICTURES[12]}
    assert archive.read([99]) == {}
    assert PICTURES[7].data_uri() == "data:image/png;base64,c2V2ZW4="


def test_equal_pictures_give_equal_bytes(tmp_path: Path) -> None:
    write_pictures(tmp_path / "p.zip", PICTURES, "run a")
    write_pictures(tmp_path / "q.zip", dict(reversed(PICTURES.items())), "run a")
    assert (tmp_path / "p.zip").read_bytes() == (tmp_path / "q.zip").read_bytes()


def test_pictures_of_something_else_a_damaged_file_and_none_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "p.zip"
    assert not PictureArchive(path, "run a").numbers
    write_pictures(path, PICTURES, "run a")
    assert not PictureArchive(path, "run b").numbers
    opened = PictureArchive(path, "run a")
    path.write_bytes(path.read_bytes()[:40])
    assert opened.read([7]) == {}
    assert not PictureArchive(path, "run a").numbers


def test_an_entry_that_is_none_of_ours_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.zip"
    big = {1: EncodedPicture("image/png", bytes(MOST_BYTES + 1)), 2: PICTURES[7]}
    write_pictures(path, big, "run a")
    assert list(PictureArchive(path, "run a").numbers) == [2]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "x")
    assert not PictureArchive(path, "run a").numbers


def test_a_small_picture_keeps_every_pixel() -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    encoded_picture = small_picture(picture, 112)
    assert encoded_picture.media_type == "image/png"
    np.testing.assert_array_equal(decoded(encoded_picture), picture)
    np.testing.assert_array_equal(decoded(encoded(picture)), picture)


@pytest.mark.parametrize(("shape", "expected"), [((80, 160, 3), (56, 112, 3)), ((100, 90), (100, 90))])
def test_a_large_picture_is_a_photograph_that_fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    encoded = small_picture(np.full(shape, 90, np.uint8), 112)
    assert encoded.media_type == "image/jpeg"
    assert decoded(encoded).shape == expected


def test_a_stored_sample_is_a_picture_if_it_has_the_shape_of_one() -> None:
    sample = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(3, 2, 3)
    np.testing.assert_array_equal(to_picture(sample), np.moveaxis(sample, 0, 2))
    stretched = to_picture(np.array([[[-1.0, 0.0], [1.0, 3.0]]], np.float32))
    np.testing.assert_array_equal(stretched, [[0, 64], [128, 255]])
    assert to_picture(np.zeros((2, 4, 4), np.uint8)) is None
    assert to_picture(np.zeros((3, 1, 4), np.uint8)) is None
