"""BlobProto to arrays and back."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.errors import WeightsError
from caffe_import.files.blob_proto import (
    array_from_blob,
    blob_from_array,
    has_shape,
    shape_of_blob,
    varint,
)
from caffe_import.proto import caffe_pb2

VALUES = np.arange(6, dtype=np.float32) / 7


def test_array_survives_the_round_trip_bit_for_bit() -> None:
    array = VALUES.reshape(2, 3)
    blob = caffe_pb2.BlobProto.FromString(blob_from_array(array).SerializeToString())
    assert list(blob.shape.dim) == [2, 3]
    np.testing.assert_array_equal(array_from_blob(blob, where="x"), array)


def test_blob_equals_one_filled_value_by_value() -> None:
    expected = caffe_pb2.BlobProto(data=VALUES.tolist(), shape=caffe_pb2.BlobShape(dim=[6]))
    assert blob_from_array(VALUES) == expected


def test_array_that_is_not_contiguous_is_stored_in_its_order() -> None:
    transposed = VALUES.reshape(2, 3).T
    np.testing.assert_array_equal(array_from_blob(blob_from_array(transposed), where="x"), transposed)


def test_no_axes_means_no_shape_field() -> None:
    blob = blob_from_array(np.array(2.5, np.float32))
    assert not blob.HasField("shape")
    assert array_from_blob(blob, where="x") == np.float32(2.5)


def test_double_data_goes_before_data() -> None:
    blob = caffe_pb2.BlobProto(data=[1], double_data=[0.1, 0.2], shape=caffe_pb2.BlobShape(dim=[2]))
    array = array_from_blob(blob, where="x")
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, np.array([0.1, 0.2], np.float32))


def test_legacy_fields_give_four_axes() -> None:
    assert shape_of_blob(caffe_pb2.BlobProto(num=1, width=3)) == (1, 0, 0, 3)
    legacy = caffe_pb2.BlobProto(num=1, channels=1, height=2, width=3, data=VALUES.tolist())
    assert array_from_blob(legacy, where="x").shape == (1, 1, 2, 3)


def test_a_shape_of_200_000_axes_is_refused_in_a_short_message() -> None:
    blob = caffe_pb2.BlobProto(data=VALUES.tolist(), shape=caffe_pb2.BlobShape(dim=[2**62] * 200_000))
    with pytest.raises(WeightsError) as caught:
        array_from_blob(blob, where='m: layer "ip" blob 0')
    finding = "a shape of 200,000 axes, allowed: at most 32; the file is damaged"
    assert str(caught.value) == f'm: layer "ip" blob 0: {finding}'


@pytest.mark.parametrize("dims", [[7], [], [2, 2], [-6], [-2, -3]])
def test_wrong_count_names_place_and_shape(dims: list[int]) -> None:
    blob = caffe_pb2.BlobProto(data=VALUES.tolist(), shape=caffe_pb2.BlobShape(dim=dims))
    with pytest.raises(WeightsError) as caught:
        array_from_blob(blob, where='m: layer "ip" blob 0')
    assert str(caught.value) == f'm: layer "ip" blob 0: 6 values for shape {tuple(dims)}; the file is damaged'


@pytest.mark.parametrize(
    ("stored", "expected", "fits"),
    [
        ((3, 64), (3, 64), True),
        ((1, 1, 3, 64), (3, 64), True),
        ((1, 1, 1, 4), (4,), True),
        ((1, 1, 1, 1), (), True),
        ((1, 3, 64), (3, 64), False),
        ((3, 64, 1, 1), (3, 64), False),
        ((1, 1, 64, 3), (3, 64), False),
        ((64,), (1, 64), False),
    ],
)
def test_has_shape(stored: tuple[int, ...], expected: tuple[int, ...], fits: bool) -> None:
    assert has_shape(stored, expected) is fits


@pytest.mark.parametrize(
    ("value", "expected"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (2**32, b"\x80\x80\x80\x80\x10")]
)
def test_varint(value: int, expected: bytes) -> None:
    assert varint(value) == expected
