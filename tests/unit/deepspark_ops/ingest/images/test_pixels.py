"""From records to stored pixels: order of the steps, and when compressed bytes may stay."""

from functools import cache

import cv2
import numpy as np
import pytest

from caffe_import.files.datum import decode_image
from deepspark_ops.ingest.images import pixels
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.shards.preprocessing import PixelSteps
from tests.reference.raw_sources import image_bgr
from tests.unit.deepspark_ops.ingest.files.test_image_header import jpeg_with_exif


def encode(image: np.ndarray, suffix: str) -> bytes:
    return cv2.imencode(suffix, image)[1].tobytes()


def test_compressed_colour_image_becomes_bgr_planes():
    pixels = PixelRecipe(PixelSteps(decode_color=True)).apply(encode(image_bgr(1), ".png"))
    np.testing.assert_array_equal(pixels, image_bgr(1).transpose(2, 0, 1))


def test_gray_file_gets_three_channels_unless_gray_is_asked_for():
    record = encode(image_bgr(1)[..., 0], ".png")
    assert PixelRecipe(PixelSteps(decode_color=True)).apply(record).shape == (3, 8, 8)
    assert PixelRecipe(PixelSteps(decode_color=True, gray=True)).apply(record).shape == (1, 8, 8)
    assert PixelRecipe(PixelSteps(decode_color=None)).apply(record).shape == (1, 8, 8)


def test_gray_of_raw_pixels_is_opencvs():
    image = image_bgr(2)
    gray = PixelRecipe(PixelSteps(gray=True)).apply(np.ascontiguousarray(image.transpose(2, 0, 1)))
    np.testing.assert_array_equal(gray[0], cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))


def test_resize_is_opencvs_bilinear():
    image = image_bgr(3, (9, 14))
    resized = PixelRecipe(PixelSteps(decode_color=True, height=5, width=6)).apply(encode(image, ".png"))
    np.testing.assert_array_equal(resized, cv2.resize(image, (6, 5)).transpose(2, 0, 1))


def test_max_pixel_scales_before_the_resize():
    digit = np.array([[[0, 16], [4, 8]]], np.uint8)
    scaled = PixelRecipe(PixelSteps(max_pixel=16)).apply(digit)
    assert scaled.tolist() == [[[0, 255], [64, 128]]]  # 63.75 and 127.5, rounded to nearest, halves up
    resized = PixelRecipe(PixelSteps(max_pixel=16, height=3, width=3)).apply(digit)
    np.testing.assert_array_equal(resized[0], cv2.resize(scaled[0], (3, 3)))


def test_every_level_scales_to_the_nearest():
    for largest in (1, 15, 16, 100, 254):
        values = np.arange(largest + 1, dtype=np.uint8).reshape(1, 1, -1)
        expected = [int(v * 255 / largest + 0.5) for v in range(largest + 1)]
        assert PixelRecipe(PixelSteps(max_pixel=largest)).apply(values)[0, 0].tolist() == expected


def test_float_pixels_are_scaled_without_rounding():
    values = np.array([[[1.0, 0.5]]], np.float32)
    np.testing.assert_allclose(PixelRecipe(PixelSteps(max_pixel=2)).apply(values), [[[127.5, 63.75]]])


@pytest.mark.parametrize(
    "record", [b"", b"no image", encode(image_bgr(1), ".jpg")[:-40], encode(image_bgr(1), ".png")[:-20]]
)
def test_damaged_image_is_rejected_with_its_size(record):
    with pytest.raises(RecordError, match=f"^{len(record)} bytes that are no image OpenCV can read"):
        PixelRecipe(PixelSteps(decode_color=True)).apply(record)


def test_value_above_max_pixel_is_rejected():
    with pytest.raises(RecordError, match="pixel value 17 exceeds max_pixel=16"):
        PixelRecipe(PixelSteps(max_pixel=16)).apply(np.full((1, 2, 2), 17, np.uint8))


def apply_and_compress(recipe: PixelRecipe, record) -> tuple[np.ndarray, bytes]:
    image, picture = recipe.apply(record), recipe.picture(record)
    np.testing.assert_array_equal(np.atleast_3d(picture).transpose(2, 0, 1), image)
    return image, recipe.compress(record, picture)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_untouched_image_keeps_its_bytes(suffix):
    record = encode(image_bgr(4), suffix)
    assert apply_and_compress(PixelRecipe(PixelSteps(decode_color=True)), record)[1] == record


@pytest.mark.parametrize(
    ("recipe", "record"),
    [
        (PixelRecipe(PixelSteps(decode_color=True, height=4, width=4)), encode(image_bgr(4), ".png")),
        (PixelRecipe(PixelSteps(gray=True)), encode(image_bgr(4), ".png")),
        (PixelRecipe(PixelSteps(decode_color=True)), encode(image_bgr(4)[..., 0], ".png")),
        (PixelRecipe(), np.ascontiguousarray(image_bgr(4).transpose(2, 0, 1))),
        (PixelRecipe(), image_bgr(4)[np.newaxis, ..., 0]),
    ],
)
def test_changed_image_is_compressed_anew_without_loss(recipe, record):
    image, compressed = apply_and_compress(recipe, record)
    assert not isinstance(record, bytes) or compressed != record
    np.testing.assert_array_equal(decode_image(compressed, color=None, where=""), image)


def test_no_image_is_decoded_twice_where_its_header_tells_enough(monkeypatch):
    def never(*_, **__):
        pytest.fail("decoded again")

    colour = PixelRecipe(PixelSteps(decode_color=True))
    smaller = PixelRecipe(PixelSteps(decode_color=True, height=4, width=4))
    cases = []
    for suffix in (".jpg", ".png"):
        record, of_gray = encode(image_bgr(4), suffix), encode(image_bgr(4)[..., 0], suffix)
        cases += [(colour, record, True), (PixelRecipe(PixelSteps(gray=True)), of_gray, True)]
        cases += [(colour, of_gray, False), (smaller, record, False)]
    pictures = [recipe.picture(record) for recipe, record, _ in cases]
    monkeypatch.setattr(pixels, "decode_picture", never)
    for (recipe, record, is_kept), picture in zip(cases, pictures, strict=True):
        assert (recipe.compress(record, picture) is record) == is_kept


def test_rotated_photograph_that_looks_the_same_keeps_its_bytes():
    record = jpeg_with_exif(6, plain=encode(np.full((16, 16, 3), 90, np.uint8), ".jpg"))
    assert apply_and_compress(PixelRecipe(PixelSteps(decode_color=True)), record)[1] is record


def test_changed_jpeg_stays_a_jpeg():
    _, compressed = apply_and_compress(PixelRecipe(PixelSteps(gray=True)), encode(image_bgr(4, (64, 64)), ".jpg"))
    assert compressed[:2] == b"\xff\xd8"
    assert decode_image(compressed, color=None, where="").shape == (1, 64, 64)


def test_pixels_that_no_image_format_holds_are_rejected():
    with pytest.raises(RecordError, match="uint8 pixels of 2 channels cannot be compressed; use encoded=false"):
        PixelRecipe().compress(b"", np.zeros((3, 3, 2), np.uint8))


@pytest.mark.parametrize(("size", "divisor"), [((256, 320), 8), ((128, 160), 4), ((64, 70), 2), ((63, 90), 1)])
@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("decode_color", [True, None])
def test_scaled_decoding_is_opencvs_reduced_image_resized(size, divisor, gray, decode_color):
    record = encode(cv2.resize(image_bgr(6), size[::-1]), ".jpg")
    recipe = PixelRecipe(PixelSteps(gray=gray, decode_color=decode_color, height=32, width=32, scaled_decoding=True))
    flag = f"IMREAD_REDUCED_{'GRAYSCALE' if gray else 'COLOR'}_{divisor}"
    if divisor == 1:
        flag = "IMREAD_GRAYSCALE" if gray else "IMREAD_COLOR"
    reduced = cv2.imdecode(np.frombuffer(record, np.uint8), getattr(cv2, flag))
    assert reduced.shape[:2] == tuple(-(-extent // divisor) for extent in size)
    np.testing.assert_array_equal(recipe.picture(record), cv2.resize(reduced, (32, 32)))


def test_scaled_decoding_leaves_pngs_turned_and_unresized_images_large_enough():
    scaled = {"decode_color": True, "scaled_decoding": True}
    image = cv2.resize(image_bgr(6), (400, 100))
    for record in (encode(image, ".png"), jpeg_with_exif(6, plain=encode(image, ".jpg"))):
        full, scaled_recipe = (
            PixelRecipe(PixelSteps(**options, height=90, width=90)) for options in ({"decode_color": True}, scaled)
        )
        np.testing.assert_array_equal(scaled_recipe.picture(record), full.picture(record))
    assert PixelRecipe(PixelSteps(**scaled)).picture(encode(image, ".jpg")).shape == (100, 400, 3)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
@pytest.mark.parametrize("of", ["picture", "quick_picture"])
def test_an_image_that_needs_too_much_memory_is_refused_before_it_is_decoded(monkeypatch, suffix, of):
    record = encode(np.zeros((2000, 3000, 3), np.uint8), suffix)  # few bytes, 17.2 MiB of pixels
    recipe = PixelRecipe(PixelSteps(decode_color=True, height=32, width=32), decode_mib=17)
    monkeypatch.setattr(pixels, "decode_picture", None)
    with pytest.raises(
        RecordError, match=r"3000x2000 pixels need 18 MiB.*decode_mib=17 allows.*give decode_mib=18"
    ) as refusal:
        (recipe.picture if of == "picture" else recipe.quick_picture())(record)
    assert ("scaled_decoding" in str(refusal.value)) == (suffix == ".jpg")


@pytest.mark.parametrize("of", ["picture", "quick_picture"])
def test_a_small_file_that_claims_many_pixels_is_refused_before_it_is_decoded(monkeypatch, of):
    record = bytearray(encode(np.zeros((8, 8, 3), np.uint8), ".jpg"))
    frame = record.find(b"\xff\xc0")
    record[frame + 5 : frame + 9] = (12_500).to_bytes(2, "big") * 2
    recipe = PixelRecipe(PixelSteps(decode_color=True, height=32, width=32), decode_mib=168)
    monkeypatch.setattr(cv2, "imdecode", None)
    with pytest.raises(RecordError, match=r"12500x12500 pixels need 448 MiB, .*decode_mib=168 allows"):
        (recipe.picture if of == "picture" else recipe.quick_picture())(bytes(record))


@cache
def large_record(suffix: str) -> bytes:
    options = [cv2.IMWRITE_WEBP_QUALITY, 80] if suffix == ".webp" else []  # lossless takes two seconds
    return cv2.imencode(suffix, cv2.resize(image_bgr(6), (3000, 2100)), options)[1].tobytes()


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tiff"])
@pytest.mark.parametrize("gray", [False, True])
def test_a_large_image_is_the_one_that_opencv_decodes_in_memory(suffix, gray):
    record = large_record(suffix)
    flag = cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR
    picture = PixelRecipe(PixelSteps(gray=gray, decode_color=True), decode_mib=64).picture(record)
    np.testing.assert_array_equal(picture, cv2.imdecode(np.frombuffer(record, np.uint8), flag))


def test_a_large_photograph_is_turned():
    record = jpeg_with_exif(6, plain=encode(cv2.resize(image_bgr(6), (3000, 2100)), ".jpg"))
    picture = PixelRecipe(PixelSteps(decode_color=True)).picture(record)
    assert picture.shape == (3000, 2100, 3)
    np.testing.assert_array_equal(picture, cv2.imdecode(np.frombuffer(record, np.uint8), cv2.IMREAD_COLOR))
    as_stored = PixelRecipe(PixelSteps(decode_color=None)).picture(record)
    np.testing.assert_array_equal(as_stored, cv2.imdecode(np.frombuffer(record, np.uint8), cv2.IMREAD_UNCHANGED))
