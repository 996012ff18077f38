"""Samples that wait for each other against Datums serialized one by one by protobuf, and plain sums."""

import cv2
import numpy as np
import pytest

from caffe_import.proto import caffe_pb2
from deepspark_ops.ingest.images.record_blocks import RecordBlock
from deepspark_ops.ingest.images.waiting_samples import WaitingSamples

SHAPES = [(3, 8, 8), (1, 8, 8), (3, 100, 120), (1, 70, 70), (4, 6, 5), (3, 400, 400)]


def images_of(shape, n, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 256, (n, *shape)).astype(dtype)


def as_picture(image):
    return image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))


def serialized(image, label) -> bytes:
    channels, height, width = image.shape
    datum = caffe_pb2.Datum(channels=channels, height=height, width=width, label=label)
    if image.dtype == np.uint8:
        datum.data = image.tobytes()
    else:
        datum.float_data.extend(image.ravel().tolist())
    datum.encoded = False
    return datum.SerializeToString()


def passed_through(waiting, images, *, is_picture, compressed=None):
    """Return what comes out, copied before the next ones go in."""
    samples = []
    for i, image in enumerate(images):
        if not waiting.room or waiting.are_pictures != is_picture(i):
            samples += [(*sample[:2], copied(sample[2])) for sample in waiting.hand_out()]
        pixels = as_picture(image) if is_picture(i) else image
        block = RecordBlock([i], [b""], [pixels], [compressed and compressed[i]], is_picture(i))
        waiting.add(block, [i * 37])
    return samples + [(*sample[:2], copied(sample[2])) for sample in waiting.hand_out()]


def copied(stored):
    return stored.copy() if isinstance(stored, np.ndarray) else bytes(stored)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kinds", ["pictures", "arrays", "both"])
def test_datums_are_protobufs_and_in_order(shape, kinds):
    images = images_of(shape, 150 if shape[1] < 70 else 5)
    waiting = WaitingSamples(shape, "uint8", as_datums=True)
    is_picture = {"pictures": lambda _: True, "arrays": lambda _: False, "both": lambda i: i % 7 < 3}[kinds]
    samples = passed_through(waiting, images, is_picture=is_picture)
    assert samples == [(i, i * 37, serialized(image, i * 37)) for i, image in enumerate(images)]
    np.testing.assert_array_equal(waiting.sums(), images.astype(np.int64).sum(axis=0))
    assert waiting.pixel_range == (images.min(), images.max())


@pytest.mark.parametrize("is_picture", [True, False])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 8), (3, 400, 400)])
def test_images_for_hdf5_have_channels_first(shape, is_picture):
    images = images_of(shape, 5)
    waiting = WaitingSamples(shape, "uint8", as_datums=False)
    samples = passed_through(waiting, images, is_picture=lambda _: is_picture)
    assert [sample[:2] for sample in samples] == [(i, i * 37) for i in range(5)]
    np.testing.assert_array_equal([sample[2] for sample in samples], images)


def test_float_arrays():
    images = images_of((2, 3, 3), 70, np.float32) / np.float32(7)
    waiting = WaitingSamples((2, 3, 3), "float32", as_datums=True)
    samples = passed_through(waiting, images, is_picture=lambda _: False)
    assert [sample[2] for sample in samples] == [serialized(image, i * 37) for i, image in enumerate(images)]
    np.testing.assert_allclose(waiting.sums(), images.astype(np.float64).sum(axis=0), rtol=1e-12)
    assert waiting.pixel_range == (images.min(), images.max())


@pytest.mark.parametrize(
    ("order", "dtype"), [((3, 250, 7), "uint8"), ((250, 7, 3), "uint8"), ((9.5, -2, np.nan), "float32")]
)
def test_the_range_is_of_all_samples_whatever_their_order(order, dtype):
    waiting = WaitingSamples((1, 400, 400), dtype, as_datums=False)  # too large to wait for each other
    images = [np.full((1, 400, 400), value, dtype) for value in order]
    passed_through(waiting, images, is_picture=lambda _: False)
    assert waiting.pixel_range == (np.nanmin(order), np.nanmax(order))


def test_compressed_bytes_are_kept_and_pixels_are_summed():
    images = images_of((3, 8, 8), 70)
    compressed = [cv2.imencode(".png", as_picture(image))[1].tobytes() for image in images]
    waiting = WaitingSamples((3, 8, 8), "uint8", as_datums=True)
    samples = passed_through(waiting, images, is_picture=lambda _: True, compressed=compressed)
    expected = [caffe_pb2.Datum(data=content, label=i * 37, encoded=True) for i, content in enumerate(compressed)]
    assert [sample[2] for sample in samples] == [datum.SerializeToString() for datum in expected]
    np.testing.assert_array_equal(waiting.sums(), images.astype(np.int64).sum(axis=0))


def test_nothing_waits_at_the_beginning():
    waiting = WaitingSamples((3, 8, 8), "uint8", as_datums=True)
    assert waiting.hand_out() == []
    assert not waiting.sums().any()


def test_large_images_do_not_wait():
    waiting = WaitingSamples((3, 400, 400), "uint8", as_datums=True)
    waiting.add(RecordBlock([0], [b""], [np.zeros((400, 400, 3), np.uint8)], [None], are_pictures=True), [0])
    assert not waiting.room
