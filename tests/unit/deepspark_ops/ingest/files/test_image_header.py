"""Headers of images that OpenCV wrote, and EXIF data written by hand after the TIFF specification."""

import struct

import cv2
import numpy as np
import pytest

from deepspark_ops.ingest.files.image_header import (
    bytes_to_decode,
    exif_orientation,
    has_alpha,
    more_than_8_bits,
    picture_size,
    stored_picture,
    usual_frame,
)


def encoded(suffix: str, dtype=np.uint8, channels=3) -> bytes:
    image = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, (6, 7, channels), dtype=dtype)
    return cv2.imencode(suffix, image)[1].tobytes()


def jpeg_with_exif(orientation: int, order: str = "<", plain: bytes = b"") -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = [(271, 2, 4, b"abc\0"), (274, 3, 1, struct.pack(f"{order}HH", orientation, 0))]
    directory = struct.pack(f"{order}H", len(entries))
    directory += b"".join(struct.pack(f"{order}HHI", *entry[:3]) + entry[3] for entry in entries)
    exif = b"Exif\0\0" + mark + struct.pack(f"{order}I", 8) + directory + bytes(4)
    plain = plain or encoded(".jpg")
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


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("channels", [1, 3])
def test_stored_picture_is_what_a_decoder_without_hints_gives(suffix, channels):
    record = encoded(suffix, channels=channels)
    decoded = cv2.imdecode(np.frombuffer(record, np.uint8), cv2.IMREAD_UNCHANGED)
    assert stored_picture(record) == (decoded.shape, True)
    assert decoded.ndim == (2 if channels == 1 else 3)


def test_stored_picture_of_other_jpegs():
    progressive = cv2.imencode(".jpg", np.zeros((6, 7, 3), np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    assert stored_picture(progressive) == ((6, 7, 3), True)
    assert stored_picture(jpeg_with_exif(6)) == ((6, 7, 3), False)
    # An earlier segment may hold a whole JPEG, as EXIF data do: it is passed over.
    thumbnail = encoded(".jpg", channels=1)
    segment = b"\xff\xe2" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    assert stored_picture(progressive[:2] + segment + progressive[2:]) == ((6, 7, 3), True)


def test_what_headers_do_not_tell_is_no_stored_picture():
    other_pictures = [encoded(".png", np.uint16), encoded(".png", channels=4), encoded(".bmp"), encoded(".webp")]
    jpeg = encoded(".jpg")
    of_four_components = bytearray(jpeg)
    of_four_components[jpeg.index(b"\xff\xc0") + 9] = 4
    for record in (
        *other_pictures,
        bytes(of_four_components),
        jpeg[:2],
        jpeg[:30],
        b"\xff\xd8" + bytes(40),
        b"",
        b"\xff\xd8\xff\xd9",
    ):
        assert stored_picture(record) is None


def test_mutated_headers_raise_nothing():
    generator = np.random.default_rng(3)
    for suffix in (".jpg", ".png"):
        for _ in range(300):
            record = bytearray(jpeg_with_exif(6) if suffix == ".jpg" else encoded(suffix))
            for at in generator.integers(0, 200, 3):
                record[min(at, len(record) - 1)] = generator.integers(0, 256)
            stored_picture(bytes(record[: generator.integers(1, len(record))]))


@pytest.mark.parametrize("channels", [1, 3])
def test_usual_frame_is_the_size_of_usual_jpegs_alone(channels):
    pixels = np.zeros((6, 700) if channels == 1 else (6, 700, 3), np.uint8)
    record = cv2.imencode(".jpg", pixels)[1].tobytes()
    assert usual_frame(record) == bytes([0, 6, 700 // 256, 700 % 256, channels])
    unusual = [
        cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes(),
        cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_OPTIMIZE, 1])[1].tobytes(),
        cv2.imencode(".png", pixels)[1].tobytes(),
        jpeg_with_exif(6),
        record[:100],
    ]
    assert [usual_frame(other) for other in unusual] == [None] * len(unusual)


def test_exif_data_after_the_frame_make_a_jpeg_unusual():
    exif, record = jpeg_with_exif(6), cv2.imencode(".jpg", np.zeros((6, 7, 3), np.uint8))[1].tobytes()
    at = exif.index(b"\xff\xe1")
    segment = exif[at : at + 2 + int.from_bytes(exif[at + 2 : at + 4], "big")]
    before_tables = record.index(b"\xff\xc4")
    assert usual_frame(record) is not None
    assert usual_frame(record[:before_tables] + segment + record[before_tables:]) is None


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".gif", ".webp", ".tiff", ".ppm"])
@pytest.mark.parametrize("channels", [3, 4])
def test_the_size_is_what_the_decoder_finds(suffix, channels):
    record = encoded(suffix, channels=3 if suffix in (".jpg", ".ppm") else channels)
    assert picture_size(record) == cv2.imdecode(np.frombuffer(record, np.uint8), cv2.IMREAD_COLOR).shape[:2] == (6, 7)


@pytest.mark.parametrize("options", [[cv2.IMWRITE_WEBP_QUALITY, 80], [cv2.IMWRITE_WEBP_QUALITY, 101]])
def test_the_size_of_a_webp_is_found_with_and_without_loss(options):
    image = np.random.default_rng(1).integers(0, 255, (300, 500, 3), dtype=np.uint8)
    assert picture_size(cv2.imencode(".webp", image, options)[1].tobytes()) == (300, 500)


@pytest.mark.parametrize(
    "record", [b"", b"RIFF    WEBPVP8X", b"RIFF    WEBPVP8 ", b"RIFF    WEBP????", b"II*\0", b"P6\n"]
)
def test_a_header_that_is_cut_short_has_no_size(record):
    assert picture_size(record) is None
    assert bytes_to_decode(record, gray=False) is None


def test_memory_to_decode_is_that_of_the_picture_and_of_what_the_decoder_keeps():
    image = np.random.default_rng(1).integers(0, 255, (64, 96, 3), dtype=np.uint8)
    n_pixels = 64 * 96
    plain = cv2.imencode(".jpg", image)[1].tobytes()
    assert bytes_to_decode(plain, gray=False) == 3 * n_pixels
    assert bytes_to_decode(plain, gray=True) == n_pixels
    assert bytes_to_decode(plain, gray=False, divisor=4) == 3 * n_pixels // 16
    assert bytes_to_decode(jpeg_with_exif(6, plain=plain), gray=False) == 6 * n_pixels
    for sampling, samples in ((cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444, 3.0), (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, 1.5)):
        options = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
        progressive = cv2.imencode(".jpg", image, options)[1].tobytes()
        assert bytes_to_decode(progressive, gray=False) == (3 + 2 * samples) * n_pixels
    tiff = cv2.imencode(".tiff", image)[1].tobytes()
    assert bytes_to_decode(tiff, gray=False) == 3 * n_pixels + len(tiff)
    with_alpha = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_BGR2BGRA))[1].tobytes()
    assert bytes_to_decode(with_alpha, gray=False) == 4 * n_pixels
