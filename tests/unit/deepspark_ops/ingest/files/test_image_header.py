"""Headers of images that OpenCV wrote, and EXIF data written by hand after the TIFF specification."""

import struct

import cv2
import numpy as np
import pytest

from deepspark_ops.ingest.files.image_header import exif_orientation, has_alpha, more_than_8_bits


def encoded(suffix: str, dtype=np.uint8, channels=3) -> bytes:
    image = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, (6, 7, channels), dtype=dtype)
    return cv2.imencode(suffix, image)[1].tobytes()


def jpeg_with_exif(orientation: int, order: str = "<") -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = [(271, 2, 4, b"abc\0"), (274, 3, 1, struct.pack(f"{order}HH", orientation, 0))]
    directory = struct.pack(f"{order}H", len(entries))
    directory += b"".join(struct.pack(f"{order}HHI", *entry[:3]) + entry[3] for entry in entries)
    exif = b"Exif\0\0" + mark + struct.pack(f"{order}I", 8) + directory + bytes(4)
    plain = encoded(".jpg")
    return plain[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + plain[2:]


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".pgm", ".ppm"])
def test_16_bits_are_seen(suffix):
    channels = 1 if suffix == ".pgm" else 3
    assert more_than_8_bits(encoded(suffix, np.uint16, channels)) == 16
    assert more_than_8_bits(encoded(suffix, np.uint8, channels)) == 0
    assert more_than_8_bits(encoded(".jpg")) == more_than_8_bits(b"") == more_than_8_bits(b"II*\0") == 0


@pytest.mark.parametrize("suffix", [".png", ".webp", ".tiff"])
def test_transparency_is_seen(suffix):
    assert has_alpha(encoded(suffix, channels=4))
    assert not has_alpha(encoded(suffix))
    assert not has_alpha(encoded(".jpg"))
    assert not has_alpha(b"")


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_is_what_opencv_turns_by(order):
    plain = jpeg_with_exif(1, order)
    turned = jpeg_with_exif(6, order)
    assert (exif_orientation(plain), exif_orientation(turned), exif_orientation(encoded(".jpg"))) == (1, 6, 1)
    assert exif_orientation(jpeg_with_exif(9, order)) == exif_orientation(turned[:40]) == 1
    assert cv2.imdecode(np.frombuffer(plain, np.uint8), cv2.IMREAD_COLOR).shape == (6, 7, 3)
    assert cv2.imdecode(np.frombuffer(turned, np.uint8), cv2.IMREAD_COLOR).shape == (7, 6, 3)
