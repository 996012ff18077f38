"""Datum records against databases that Caffe's convert_imageset wrote."""

import resource

import cv2
import numpy as np
import pytest

from caffe_import.errors import DataSourceError
from caffe_import.files.datum import (
    chw_from_hwc,
    decode_datum,
    decode_image,
    encode_datum,
    encode_datum_jpeg,
    hwc_from_chw,
    resize_image,
)
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES
from tests.reference.lmdb_files import lmdb_records

CAFFE = FIXTURES / "caffe"


def test_a_chunk_of_a_png_that_claims_more_than_there_is_takes_no_memory() -> None:
    png = cv2.imencode(".png", np.arange(48, dtype=np.uint8).reshape(4, 4, 3))[1].tobytes()
    offset = png.index(b"IDAT") - 4
    claims = png[:offset] + (0x65393939).to_bytes(4, "big") + png[offset + 4 :]
    old_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataSourceError, match="that are no image OpenCV can read"):
        decode_image(claims, color=True, where="x.png")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - old_rss < 200_000  # KiB; OpenCV would take 1.7 GB
    assert decode_image(png + b"more after its end", color=True, where="x.png").shape == (3, 4, 4)


def datums_of(name: str) -> dict[str, bytes]:
    return {key.decode()[9:]: value for key, value in lmdb_records(CAFFE / "data" / name).items()}


@pytest.mark.parametrize(("name", "gray"), [("lmdb_raw", False), ("lmdb_gray", True), ("lmdb_grayfromcolor", True)])
def test_raw_datum_has_the_bytes_that_convert_imageset_wrote(name, gray):
    records = datums_of(name)
    assert len(records) >= 5
    for file, record in records.items():
        image = decode_image((CAFFE / "data" / "img" / file).read_bytes(), color=not gray, where=file)
        label = caffe_pb2.Datum.FromString(record).label
        assert encode_datum(image, label) == record


def test_resized_datum_has_the_bytes_that_convert_imageset_wrote():
    for file, record in datums_of("lmdb_resized").items():
        image = decode_image((CAFFE / "data" / "img" / file).read_bytes(), color=True, where=file)
        assert encode_datum(resize_image(image, 10, 12), caffe_pb2.Datum.FromString(record).label) == record


@pytest.mark.parametrize("name", ["lmdb_jpg", "lmdb_png"])
def test_compressed_datum_has_the_bytes_that_convert_imageset_wrote(name):
    for file, record in datums_of(name).items():
        label = caffe_pb2.Datum.FromString(record).label
        assert encode_datum_jpeg((CAFFE / "data" / "img" / file).read_bytes(), label) == record


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_decode_returns_what_was_encoded(dtype):
    image = np.random.default_rng(0).integers(0, 256, (2, 3, 4)).astype(dtype)
    decoded, label = decode_datum(encode_datum(image, 41))
    assert (decoded.dtype, label) == (dtype, 41)
    np.testing.assert_array_equal(decoded, image)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 2), (2, 5, 3), (1, 200, 700), (4, 127, 129)])
@pytest.mark.parametrize("label", [0, 1, 127, 128, 300, 2**31 - 1, -1, -(2**31)])
def test_datum_written_by_hand_has_protobufs_bytes(shape, label):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    channels, height, width = shape
    raw = caffe_pb2.Datum(channels=channels, height=height, width=width, data=image.tobytes(), label=label)
    raw.encoded = False
    assert encode_datum(image, label) == raw.SerializeToString()
    turned = caffe_pb2.Datum.FromString(encode_datum(image.transpose(0, 2, 1), label))
    assert (turned.height, turned.width, turned.data) == (width, height, image.transpose(0, 2, 1).tobytes())
    content = image.tobytes()[:20_000]
    compressed = caffe_pb2.Datum(data=content, label=label, encoded=True)
    assert encode_datum_jpeg(content, label) == compressed.SerializeToString()


def test_label_that_a_datum_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="label 2147483648 is outside of int32"):
        encode_datum(np.zeros((1, 1, 1), np.uint8), 2**31)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (1, 1, 4), (64, 33, 3)])
def test_order_of_axes_is_numpys_transpose(shape, dtype):
    picture = np.random.default_rng(2).integers(0, 256, shape).astype(dtype)
    for hwc in (picture, np.asfortranarray(picture), picture[::-1, ::-1]):
        planes = chw_from_hwc(hwc)
        expected = np.atleast_3d(hwc).transpose(2, 0, 1)
        np.testing.assert_array_equal(planes, expected)
        assert planes.dtype == dtype
        np.testing.assert_array_equal(np.atleast_3d(hwc_from_chw(expected)), np.atleast_3d(hwc))


def test_pixels_are_bgr():
    red = np.zeros((4, 4, 3), np.uint8)
    red[..., 2] = 255  # OpenCV's order
    record = encode_datum_jpeg(cv2.imencode(".png", red)[1].tobytes(), 0)
    assert decode_datum(record)[0].reshape(3, -1).mean(axis=1).tolist() == [0.0, 0.0, 255.0]


@pytest.mark.parametrize(("color", "channels"), [(None, 1), (True, 3), (False, 1)])
def test_color_decides_the_channels_of_compressed_gray_images(color, channels):
    record = encode_datum_jpeg(cv2.imencode(".png", np.full((3, 5), 7, np.uint8))[1].tobytes(), 2)
    image, label = decode_datum(record, color=color)
    assert (image.shape, label) == ((channels, 3, 5), 2)
    assert (image == 7).all()


def test_record_that_is_no_datum_names_the_record():
    with pytest.raises(DataSourceError) as caught:
        decode_datum(b"\xff\xff\xff", where="db: record 7")
    assert str(caught.value) == "db: record 7: 3 bytes that are no Caffe Datum; is this a database of images?"


def test_mutated_datums_decode_or_are_refused_by_the_importer():
    generator = np.random.default_rng(7)
    images = (np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.ones((1, 2, 3), np.float32))
    refused = 0
    for number in range(400):
        record = bytearray(encode_datum(images[number % 2], 3))
        for at in generator.integers(0, len(record), generator.integers(1, 4)):
            record[at] = generator.integers(0, 256)
        try:
            image, _ = decode_datum(bytes(record), where="db: record 7")
        except DataSourceError:
            refused += 1
        else:
            assert min(image.shape) >= 1
    assert 50 < refused < 400


@pytest.mark.parametrize("shape", [(-1, -4, 3), (-2, 6, -1), (0, 0, 0), (3, 0, 4)])
def test_datum_without_a_positive_shape_is_refused(shape):
    channels, height, width = shape
    record = caffe_pb2.Datum(channels=channels, height=height, width=width, data=bytes(12)).SerializeToString()
    with pytest.raises(DataSourceError) as caught:
        decode_datum(record, where="db: record 7")
    assert str(caught.value) == (
        f"db: record 7: shape {shape}: channels, height and width must be at least 1; make the database again"
    )


@pytest.mark.parametrize(
    ("datum", "finding"),
    [
        (caffe_pb2.Datum(channels=3, height=2, width=2, data=b"12345"), "shape (3, 2, 2) needs 12 values"),
        (caffe_pb2.Datum(label=1), "shape (0, 0, 0): channels, height and width must be at least 1"),
        (caffe_pb2.Datum(data=b"no image", encoded=True), "8 bytes that are no image OpenCV can read"),
        (caffe_pb2.Datum(encoded=True), "0 bytes that are no image OpenCV can read"),
    ],
)
def test_damaged_datum_says_what_is_wrong(datum, finding):
    with pytest.raises(DataSourceError) as caught:
        decode_datum(datum.SerializeToString(), where="here")
    assert str(caught.value).startswith(f"here: {finding}")


def test_sixteen_bit_image_is_refused():
    compressed = cv2.imencode(".png", np.full((3, 5), 700, np.uint16))[1].tobytes()
    with pytest.raises(DataSourceError, match="pixels are uint16; Caffe reads images of 8 bits a channel"):
        decode_image(compressed, color=None, where="x")


def test_resize_keeps_equal_size_and_dtype():
    image = np.random.default_rng(1).random((3, 4, 5), np.float32)
    assert resize_image(image, 4, 5) is image
    assert resize_image(image, 8, 10).dtype == np.float32
    assert resize_image(image[:1], 2, 2).shape == (1, 2, 2)
