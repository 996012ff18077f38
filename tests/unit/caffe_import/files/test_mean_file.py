"""Mean images as compute_image_mean writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.errors import WeightsError
from caffe_import.files.mean_file import read_mean, write_mean
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

RECORDED = FIXTURES / "caffe" / "data" / "mean.binaryproto"


def test_recorded_mean_is_rewritten_byte_for_byte(tmp_path: Path) -> None:
    mean = read_mean(RECORDED)
    assert (mean.shape, mean.dtype) == ((3, 14, 17), np.float32)
    write_mean(tmp_path / "m.binaryproto", mean)
    assert (tmp_path / "m.binaryproto").read_bytes() == RECORDED.read_bytes()


@pytest.mark.parametrize("dims", [[2, 1, 2], [1, 2, 1, 2]])
def test_current_shapes_are_read(dims: list[int], tmp_path: Path) -> None:
    blob = caffe_pb2.BlobProto(data=[1, 2, 3, 4], shape=caffe_pb2.BlobShape(dim=dims))
    (tmp_path / "m").write_bytes(blob.SerializeToString())
    np.testing.assert_array_equal(read_mean(tmp_path / "m"), [[[1, 2]], [[3, 4]]])


@pytest.mark.parametrize("dims", [[4], [2, 2], [2, 1, 1, 2], [1, 1, 1, 2, 2]])
def test_other_shapes_are_refused(dims: list[int], tmp_path: Path) -> None:
    blob = caffe_pb2.BlobProto(data=[1, 2, 3, 4], shape=caffe_pb2.BlobShape(dim=dims))
    (tmp_path / "m").write_bytes(blob.SerializeToString())
    with pytest.raises(WeightsError, match=r"one image \(C, H, W\) or \(1, C, H, W\) was expected"):
        read_mean(tmp_path / "m")


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="No such file or directory"):
        read_mean(tmp_path / "m")
    (tmp_path / "m").write_bytes(RECORDED.read_bytes()[:-5])
    with pytest.raises(WeightsError, match=r"is damaged, cut off or not a mean\.binaryproto"):
        read_mean(tmp_path / "m")


def test_only_images_are_written(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"a mean image has shape \(C, H, W\), not \(4,\)"):
        write_mean(tmp_path / "m", np.zeros(4, np.float32))
    assert list(tmp_path.iterdir()) == []
