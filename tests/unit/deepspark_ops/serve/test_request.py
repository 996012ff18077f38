import base64
import json

import cv2
import numpy as np
import pytest

from deepspark_ops.export.input_steps import FILL
from deepspark_ops.predict.samples import BundleForm, SampleForm
from deepspark_ops.serve.refusal import RequestRefused
from deepspark_ops.serve.request import samples_of_json, samples_of_pictures
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from tests.reference.table_files import columns_named
from tests.unit.deepspark_ops.serve.fake_model import image_input, number_input

IMAGES = BundleForm((image_input(),))
NUMBERS = BundleForm((number_input(),))
RGB = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)


def refusal_of(request, form):
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    with pytest.raises(RequestRefused) as caught:
        samples_of_json(body, form)
    return caught.value.status, str(caught.value)


def test_arrays_become_what_is_stored():
    ((stored,),) = samples_of_json(json.dumps({"instances": [RGB.tolist()]}).encode(), IMAGES)
    assert (stored.dtype, stored.shape) == (np.uint8, (3, 2, 3))
    for channel, row, column in np.ndindex(stored.shape):
        assert stored[channel, row, column] == RGB[row, column, 2 - channel]
    ((sample,),) = samples_of_json(b'{"instance": [1, 2.5, 3, 4e0]}', NUMBERS)
    assert (sample.dtype, sample.tolist()) == (np.float32, [1, 2.5, 3, 4])


def test_encoded_images_and_pictures_are_decoded_and_resized_as_at_ingestion():
    bgr = np.full((8, 9, 3), (10, 20, 30), np.uint8)
    png = cv2.imencode(".png", bgr)[1].tobytes()
    body = json.dumps({"instances": [{"b64": base64.b64encode(png).decode()}, RGB.tolist()]}).encode()
    (first,), (second,) = samples_of_json(body, IMAGES)
    assert (first.shape, first[:, 0, 0].tolist(), second.shape) == ((3, 2, 3), [10, 20, 30], (3, 2, 3))
    ((same,),) = samples_of_pictures([("a.png", png)], IMAGES)
    np.testing.assert_array_equal(same, first)


def test_several_inputs_are_an_object_of_each():
    form = BundleForm((image_input("left"), number_input("right", (-1, 2))))
    ((left_value, right),) = samples_of_json(
        json.dumps({"instances": [{"right": [1, 2], "left": RGB.tolist()}]}).encode(), form
    )
    assert (left_value.shape, right.tolist()) == ((3, 2, 3), [1, 2])
    status, text = refusal_of({"instances": [{"left": RGB.tolist()}]}, form)
    assert status == 422
    assert text.startswith('instances[0]: found an object with keys left, expected an object with "left": uint8 of')


EXPECTED = 'expected uint8 of shape (2, 3, 3) (H, W, C, RGB) or {"b64": "..."} of an image file'


@pytest.mark.parametrize(
    ("request_", "status", "text"),
    [
        (b"{", 400, "the body is no JSON: "),
        (b"[" * 200_000, 400, "the body is no JSON: "),
        ([1], 400, 'found a list, expected {"instances": [...]} or {"instance": ...}'),
        ({"images": 1}, 400, "found an object with keys images, expected"),
        ({"instances": 3}, 400, "instances: found a number, expected a list"),
        ({"instances": []}, 422, f"instances: found an empty list, expected at least one: {EXPECTED[9:]}"),
        ({"instances": [RGB.tolist(), [[1, 2], [3]]]}, 422, 'instances[1]: input "images": found lists of unequal'),
        ({"instances": [RGB[0].tolist()]}, 422, f'instances[0]: input "images": found shape (3, 3), {EXPECTED}'),
        ({"instances": [RGB[:, :2].tolist()]}, 422, f'input "images": found shape (2, 2, 3), {EXPECTED}'),
        ({"instances": [(RGB + 0.5).tolist()]}, 422, "found numbers that are not whole or not in 0 to 255"),
        ({"instances": [(RGB.astype(int) + 250).tolist()]}, 422, "found numbers that are not whole or not in 0 to 255"),
        ({"instances": [np.where(RGB == 4, None, RGB).tolist()]}, 422, 'input "images": number 4 is missing, and'),
        ({"instances": ["cat"]}, 422, f"found a text that is no numbers, {EXPECTED}"),
        ({"instances": [None]}, 422, f"found null that is no numbers, {EXPECTED}"),
        ({"instances": [True]}, 422, f"found true or false that is no numbers, {EXPECTED}"),
        ({"instances": [10**30]}, 422, f"found a number that is no numbers, {EXPECTED}"),
        ({"instances": [{"url": "http://x"}]}, 422, f"found an object with keys url, {EXPECTED}"),
        ({"instances": [{"b64": "?"}]}, 422, "b64 is no base64"),
        ({"instances": [{"b64": "AAAA"}]}, 422, "3 bytes that are no image OpenCV can read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(request_, status, text):
    refusal = refusal_of(request_, IMAGES)
    assert refusal[0] == status
    assert text in refusal[1]


def test_numbers_must_be_finite_and_of_the_shape():
    for missing in ("NaN", "null"):
        assert refusal_of(f'{{"instances": [[1, 2, 3, 4], [1, 2, 3, {missing}]]}}'.encode(), NUMBERS) == (
            422,
            'instances[1]: input "x": number 3 is missing, and the bundle does not fill missing numbers, expected'
            " float32 of shape (4) (axis 1)",
        )
    assert "number 3 is not finite in float32, expected" in refusal_of(b'{"instance": [1, 2, 3, 1e39]}', NUMBERS)[1]
    assert "found shape (0)" in refusal_of({"instance": []}, NUMBERS)[1]
    assert "found an object with keys b64" in refusal_of({"instance": {"b64": "AAAA"}}, NUMBERS)[1]


def test_missing_numbers_are_taken_where_the_bundle_fills_them():
    contract = number_input().contract.model_copy(update={"preprocessing": (FILL,)})
    form = BundleForm((SampleForm.of(contract, table=columns_named("age", "height", "weight", "income")),))
    (first,), (second,) = samples_of_json(b'{"instances": [[1, null, 3, NaN], [null, null, null, 2]]}', form)
    np.testing.assert_array_equal(first, np.float32([1, np.nan, 3, np.nan]))
    np.testing.assert_array_equal(second, np.float32([np.nan, np.nan, np.nan, 2]))
    assert first.dtype == np.float32
    assert "age (number 0) is not finite in float32" in refusal_of(b'{"instance": [1e39, null, 3, 4]}', form)[1]
    assert "weight (number 2) is not finite" in refusal_of(b'{"instance": [1, null, -Infinity, 4]}', form)[1]
    for no_numbers in (
        '[1, null, "3", 4]',
        "[1, null, true, 4]",
        "[1, null, [2], 4]",
        "null",
        f"[{10**400}, null, 1, 1]",
    ):
        status, text = refusal_of(f'{{"instance": {no_numbers}}}'.encode(), form)
        assert (status, text.startswith('instance: input "x": found ')) == (422, True)
    assert "found shape (3)" in refusal_of(b'{"instance": [1, null, 3]}', form)[1]
    refused = SampleForm.of(number_input().contract, table=columns_named("age", "height", "weight", "income"))
    status, text = refusal_of(b'{"instances": [[1, null, 3, 4]]}', BundleForm((refused,)))
    assert (status, 'instances[0]: input "x": height (number 1) is missing' in text) == (422, True)


def test_a_bundle_of_any_size_needs_what_it_cuts_out():
    form = BundleForm((image_input(shape=(-1, -1, -1, 3), crop_size=3),))
    ((stored,),) = samples_of_json(json.dumps({"instance": np.zeros((3, 5, 3), int).tolist()}).encode(), form)
    assert stored.shape == (3, 3, 5)
    status, text = refusal_of({"instance": np.zeros((2, 5, 3), int).tolist()}, form)
    assert (status, "found 2 x 5 pixels, expected at least 3 x 3" in text) == (422, True)


def test_pictures_that_cannot_be_used():
    for pictures, form, status, text in [
        ([], IMAGES, 400, "found no file in the form"),
        ([("a.txt", b"no image")], IMAGES, 422, 'a.txt: input "images": 8 bytes that are no image'),
        ([("a.png", b"x")], NUMBERS, 422, "found a picture, expected JSON: float32 of shape (4)"),
    ]:
        with pytest.raises(RequestRefused) as caught:
            samples_of_pictures(pictures, form)
        assert caught.value.status == status
        assert text in str(caught.value)


def test_a_raw_picture_is_treated_as_the_training_images_were_and_numbers_are_taken_as_they_are():
    images = ImagePreprocessing(decode_color=True, max_pixel=16, height=2, width=3, sample_shape=(3, 2, 3))
    contract = image_input(shape=(-1, 2, 3, 3)).contract.model_copy(update={"images": images})
    form = BundleForm((SampleForm.of(contract),))
    png = cv2.imencode(".png", np.full((5, 7, 3), 8, np.uint8))[1].tobytes()
    encoded = json.dumps({"instances": [{"b64": base64.b64encode(png).decode()}]}).encode()
    for (sample,) in (*samples_of_pictures([("a.png", png)], form), *samples_of_json(encoded, form)):
        assert sample.tolist() == np.full((3, 2, 3), 128).tolist()
    ((sample,),) = samples_of_json(json.dumps({"instances": [np.full((2, 3, 3), 8).tolist()]}).encode(), form)
    assert sample.tolist() == np.full((3, 2, 3), 8).tolist()  # what the SavedModel takes, as TensorFlow Serving would
    bright = cv2.imencode(".png", np.full((5, 7, 3), 17, np.uint8))[1].tobytes()
    with pytest.raises(RequestRefused, match=r'^a.png: input "images": pixel value 17 exceeds max_pixel=16'):
        samples_of_pictures([("a.png", bright)], form)


def form_of_images(*, shape=(-1, 2, 3, 1), **steps):
    contract = image_input(shape=shape).contract
    images = ImagePreprocessing(**{"dtype": "uint8", **steps})
    channels = "gray" if shape[3] == 1 else "RGB"
    return BundleForm((SampleForm.of(contract.model_copy(update={"images": images, "channels": channels})),))


def pixels_of(values, shape=(2, 3, 1)):
    return {"instance": np.resize(values, shape).tolist()}


def test_lists_of_pixels_that_ingestion_cannot_give_are_refused():
    """Without a resize a scaled pixel is one of 17 levels: round(255 * k / 16)."""
    form = form_of_images(max_pixel=16, sample_shape=(1, 2, 3))
    levels = [(2 * 255 * k + 16) // 32 for k in range(17)]
    for first in range(0, 17, 6):
        (((stored,),)) = samples_of_json(json.dumps(pixels_of(levels[first : first + 6])).encode(), form)
        assert sorted(set(stored.ravel().tolist())) == levels[first : first + 6]
    status, text = refusal_of(pixels_of([0, 16, 7]), form)
    assert (status, text.startswith('instance: input "images": found pixel 7, which scaling 16 to 255')) == (422, True)
    assert "values up to 16" in text


@pytest.mark.parametrize(
    "steps", [{"max_pixel": 16, "height": 2, "width": 3}, {"max_pixel": 16, "encoded": True}, {"max_pixel": 255}, {}]
)
def test_lists_that_ingestion_may_give_are_taken(steps):
    ((sample,),) = samples_of_json(json.dumps(pixels_of([0, 7, 200])).encode(), form_of_images(**steps))
    assert sample.ravel().tolist() == [0, 7, 200, 0, 7, 200]


def test_lists_have_the_size_of_the_training_samples_where_the_bundle_cuts_a_square_out():
    form = form_of_images(shape=(-1, -1, -1, 1), sample_shape=(1, 4, 5))
    status, text = refusal_of(pixels_of([1], (4, 4, 1)), form)
    assert (status, "found 4 x 4 pixels, the training samples had 4 x 5" in text) == (422, True)
    assert len(samples_of_json(json.dumps(pixels_of([1], (4, 5, 1))).encode(), form)) == 1
    anything = form_of_images(shape=(-1, -1, -1, 1))
    assert len(samples_of_json(json.dumps(pixels_of([1], (4, 4, 1))).encode(), anything)) == 1


def test_numbers_of_a_table_are_raw_rows_which_the_bundle_itself_fills_and_standardises():
    contract = number_input().contract.model_copy(update={"is_table": True})
    form = BundleForm((SampleForm.of(contract, table=columns_named("age", "height", "weight", "income")),))
    ((row,),) = samples_of_json(b'{"instance": [40, 1.75, 80.5, -3e4]}', form)
    assert (row.dtype, row.tolist()) == (np.float32, [40, 1.75, 80.5, -30000])
