"""Images of another range than the training images are noticed by all images of a call together."""

from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict.pixel_range import FEWEST_IMAGES, PixelWatch, SeenPixels
from deepspark_ops.predict.samples import BundleForm, Sample, SampleForm
from deepspark_ops.predict.stream import AnswerCount
from deepspark_ops.shards.preprocessing import ImagePreprocessing


def form_of(pixel_range, dtype="uint8", **steps):
    images = ImagePreprocessing(dtype=dtype, sample_shape=(1, 4, 6), pixel_range=pixel_range, **steps)
    contract = InputContract(
        name="x", shape=(-1, 4, 6, 1), axes="N, H, W, C", dtype=dtype, channels="gray", preprocessing=(), images=images
    )
    return BundleForm((SampleForm.of(contract),))


def images_between(least, largest, count=FEWEST_IMAGES, dtype=np.uint8):
    images = np.linspace(least, largest, 24).astype(dtype).reshape(1, 1, 4, 6).repeat(count, axis=0)
    return [(image,) for image in images]


def remarks_of(form, *groups):
    watch = PixelWatch(form)
    for group in groups:
        watch.add(group)
    return watch.remarks()


SCALES = (
    "if 16 is the largest pixel that such images can have, max_pixel=16 (--max-pixel 16) scales them; ingested datasets"
    " and lists of pixels must have been scaled before"
)


def test_a_small_range_names_both_ranges_and_the_option():
    form = form_of((0.0, 255.0))
    text = f"pixels are 0 to 16, those of the training images were 0 to 255; answers may be wrong; {SCALES}"
    assert remarks_of(form, images_between(0, 16, 3), images_between(2, 9, 6)) == {text: 9}
    (text,) = remarks_of(form, images_between(0, 1))
    assert text.startswith("pixels are 0 to 1, ")
    assert "max_pixel=1 " in text


def test_the_option_is_of_raw_pixels_where_the_bundle_scales_them():
    """With ``max_pixel`` 16 raw pixels of 0 and 1 become 0 and 16."""
    assert "max_pixel=1 " in next(iter(remarks_of(form_of((0.0, 255.0), max_pixel=16), images_between(0, 16))))


@pytest.mark.parametrize(
    "groups",
    [
        [images_between(0, 40, FEWEST_IMAGES - 1)],  # too few
        [images_between(0, 40), images_between(0, 200, 1)],  # dark pictures and a bright one
        [images_between(0, 200, 1), images_between(0, 40)],
        [images_between(7, 7, 50)],  # of one value
        [images_between(0, 64)],  # more than a quarter
    ],
)
def test_dark_pictures_are_no_mistake(groups):
    assert remarks_of(form_of((0.0, 255.0)), *groups) == {}


def test_a_range_of_a_quarter_is_small():
    assert remarks_of(form_of((0.0, 252.0)), images_between(0, 63))
    assert not remarks_of(form_of((0.0, 251.0)), images_between(0, 63))


def test_a_large_range_is_a_mistake_too():
    (text,) = remarks_of(form_of((0.0, 16.0)), images_between(0, 10, 20), images_between(0, 255, 1))
    assert text == (
        "pixels are 0 to 255, those of the training images were 0 to 16; answers may be wrong; give images of the"
        " training images' range, or train on images of this range"
    )


def test_floats_that_were_not_scaled_to_255_have_another_remedy():
    form = form_of((-1.0, 1.0), "float32")
    (text,) = remarks_of(form, images_between(-0.125, 0.25, dtype=np.float32))
    assert text == (
        "pixels are -0.125 to 0.25, those of the training images were -1 to 1; answers may be wrong; scale the images"
        " as the training images were scaled"
    )
    (text,) = remarks_of(form_of((0.0, 255.0), "float32"), images_between(0, 0.5, dtype=np.float32))
    assert "max_pixel=1 " in text


@pytest.mark.parametrize("pixel_range", [None, (3.0, 3.0)])
def test_without_a_range_nothing_is_said(pixel_range):
    assert remarks_of(form_of(pixel_range), images_between(0, 1)) == {}


def test_parts_are_judged_together():
    form = form_of((0.0, 255.0))
    total = AnswerCount()
    for group in (images_between(0, 16, 5), images_between(3, 9, 5)):
        part = AnswerCount()
        part.add([Sample("", parts) for parts in group], PixelWatch(form, part.pixels))
        total.merge(part)
    assert (total.n_records, total.pixels) == (10, {"x": SeenPixels(10, 0.0, 16.0)})
    assert list(total.summary(Path("rows.parquet"), form, 1.0).remarks.values()) == [10]


def test_images_are_no_longer_read_once_their_range_is_wide_enough():
    class Unread:
        def __getitem__(self, _):
            pytest.fail("was read")

    watch = PixelWatch(form_of((0.0, 255.0)))
    watch.add(images_between(0, 100, 1))
    watch.add([Unread()])
    assert watch.pixels["x"].n_images == 1
