from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from deepspark_ops.config.commands.predict import RawImageConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.input_steps import FILL
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict.record import InputRecord
from deepspark_ops.predict.samples import BundleForm, SampleForm, chunk_size, sample_chunks
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from tests.reference.table_files import columns_named


def contract_of(shape, dtype="uint8", axes="N, H, W, C", channels="gray"):
    return InputContract(name="x", shape=shape, axes=axes, dtype=dtype, channels=channels, preprocessing=())


def sample_of(form, content):
    return BundleForm((form,)).sample(InputRecord("id", content))


def values_of(form, content):
    (values,) = sample_of(form, content).values
    return values


def error_of(form, content):
    return sample_of(form, content).error


def test_pixels_keep_their_values_and_get_the_bundles_size():
    form = SampleForm.of(contract_of((-1, 4, 6, 1)))
    image = np.arange(24, dtype=np.uint8).reshape(1, 4, 6)
    np.testing.assert_array_equal(values_of(form, image), image)
    assert values_of(form, np.zeros((3, 9, 9), np.uint8)).shape == (1, 4, 6)
    free = SampleForm.of(contract_of((-1, -1, -1, 3), channels="RGB"), crop_size=5)
    assert values_of(free, np.zeros((3, 9, 7), np.uint8)).shape == (3, 9, 7)
    assert error_of(free, np.zeros((3, 9, 4), np.uint8)) == "9 x 4 pixels, the bundle cuts 5 x 5 out"
    assert error_of(free, np.zeros((1, 9, 9), np.uint8)) == "1 channels, the bundle takes 3"
    assert error_of(form, np.zeros((2, 4, 6), np.uint8)) == (
        "2 channels, the bundle takes 1; give each image of a pair as an input of its own, and compare the distance of"
        " the two vectors with the best_threshold of the evaluation"
    )
    assert error_of(free, np.zeros((3, 9, 9), np.float32)) == "pixels are float32, the bundle takes uint8"


def test_a_row_of_numbers_is_a_gray_image_or_a_sample():
    form = SampleForm.of(contract_of((-1, 2, 3, 1)))
    values = values_of(form, np.float32([0, 1, 2, 3, 4, 255]))
    assert (values.dtype, values.tolist()) == (np.uint8, [[[0, 1, 2], [3, 4, 255]]])
    assert error_of(form, np.float32([0, 1, 2, 3, 4, 256])) == "numbers that are no pixels, whole and from 0 to 255"
    assert "5 numbers, the bundle takes images" in error_of(form, np.zeros(5, np.float32))
    plain = SampleForm.of(contract_of((-1, 2, 2), "float32", "N, axis 1, axis 2", ""))
    assert plain.n_values == 4
    assert values_of(plain, np.float32([1, 2, 3, 4])).tolist() == [[1, 2], [3, 4]]
    assert error_of(plain, np.zeros(5, np.float32)) == "5 numbers, the bundle takes 4"
    assert error_of(plain, b"image") == "an image, the bundle takes 4 numbers"


def test_a_number_may_be_missing_where_the_bundle_fills_it():
    contract = contract_of((-1, 2), "float32", "N, axis 1", "")
    plain = SampleForm.of(contract, table=columns_named("age", "height"))
    fills = SampleForm.of(contract.model_copy(update={"preprocessing": (FILL,)}))
    gap = np.float32([1, np.nan])
    assert error_of(plain, gap) == "height (number 1) is missing, and the bundle does not fill missing numbers"
    np.testing.assert_array_equal(values_of(fills, gap), gap)
    assert error_of(fills, np.float32([np.inf, np.nan])) == "number 0 is not finite in float32"


def test_only_needed_records_are_read():
    numbers_read = []

    def records():
        for number in range(1000):
            numbers_read.append(number)
            yield InputRecord(str(number), np.zeros((1, 2, 2), np.uint8))

    form = SampleForm.of(contract_of((-1, 2, 2, 1)))
    chunks = sample_chunks(records(), BundleForm((form,)).sample, size=10, n_threads=2)
    first = next(chunks)
    assert ([sample.id for sample in first], len(numbers_read)) == ([str(number) for number in range(10)], 20)
    assert sum(len(chunk) for chunk in chunks) == 990


def test_several_inputs_are_given_by_name(tmp_path):
    numbers = SampleForm.of(contract_of((-1, 2), "float32", "N, axis 1", ""))
    image = SampleForm.of(contract_of((-1, 1, 2, 1)).model_copy(update={"name": "y"}))
    form = BundleForm((numbers, image))
    values_by_name = {"y": np.zeros((1, 1, 2), np.uint8), "x": np.float32([1, 2])}
    first, second = form.sample(InputRecord("id", values_by_name)).values
    assert (first.tolist(), second.shape) == ([1, 2], (1, 1, 2))
    assert form.sample(InputRecord("id", {"x": values_by_name["x"]})).error == 'input "y" is missing'
    assert form.sample(InputRecord("id", {**values_by_name, "x": None})).error == 'input "x" is missing'
    error = form.sample(InputRecord("id", {**values_by_name, "x": np.zeros(3)})).error
    assert error == 'input "x": 3 numbers, the bundle takes 2'
    with pytest.raises(ConfigError, match=r"takes 2 inputs \(x, y\); only a table .* e\.g\. x=COLUMN,y=COLUMN"):
        form.only_input(tmp_path)
    assert BundleForm((image,)).only_input(tmp_path) is image


def trained_on(shape=(-1, 4, 6, 1), **steps):
    images = ImagePreprocessing(dtype="uint8", sample_shape=(1, 4, 6), **steps)
    return contract_of(shape).model_copy(update={"images": images})


def png(image):
    return cv2.imencode(".png", image)[1].tobytes()


def test_raw_images_are_treated_as_the_training_images_were():
    form = SampleForm.of(trained_on(max_pixel=16, height=4, width=6))
    digit = np.random.default_rng(0).integers(0, 17, (8, 8), dtype=np.uint8)
    scaled = np.floor(digit * (255 / 16) + 0.5).astype(np.uint8)
    expected = cv2.resize(scaled, (6, 4))[np.newaxis]
    for content in (png(digit), digit[np.newaxis]):
        np.testing.assert_array_equal(values_of(form, content), expected)
    assert form.remarks == ()
    stored = BundleForm((form,)).sample(InputRecord("id", expected, is_stored=True))
    np.testing.assert_array_equal(stored.values[0], expected)  # not twice


def test_an_image_out_of_the_training_images_range_size_or_type_is_refused():
    form = SampleForm.of(trained_on(max_pixel=16))
    assert error_of(form, np.full((1, 4, 6), 17, np.uint8)) == (
        "pixel value 17 exceeds max_pixel=16, the largest of the training images; for images of another range give"
        " their largest value as max_pixel"
    )
    assert error_of(form, np.zeros((1, 8, 8), np.uint8)) == (
        "8 x 8 pixels, the training images had 4 x 6 and were not resized; resize_height=4 and resize_width=6 resize"
        " this one all the same"
    )
    assert error_of(form, np.zeros((1, 4, 6), np.float32)) == (
        "pixels are float32, those of the training images were uint8"
    )
    of_floats = trained_on().model_copy(
        update={"dtype": "float32", "images": ImagePreprocessing(dtype="float32", sample_shape=(1, 4, 6))}
    )
    error = error_of(SampleForm.of(of_floats), png(np.zeros((4, 6), np.uint8)))
    assert error == "pixels are uint8, those of the training images were float32"
    cut = SampleForm.of(trained_on((-1, -1, -1, 1)), crop_size=3)  # any size goes into the bundle, not into this net
    assert "8 x 8 pixels, the training images had 4 x 6" in error_of(cut, np.zeros((1, 8, 8), np.uint8))


def test_channels_become_those_of_the_training_images_with_a_remark():
    form = SampleForm.of(trained_on())
    color = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    sample = sample_of(form, png(color))
    gray = cv2.imdecode(np.frombuffer(png(color), np.uint8), cv2.IMREAD_GRAYSCALE)
    np.testing.assert_array_equal(sample.values[0][0], gray)
    assert sample.remark == "3 channels became 1; every training image had 1"
    transparent = sample_of(form, png(np.dstack([color, color[..., :1]])))
    assert transparent.remark == "4 channels became 1; every training image had 1"
    np.testing.assert_array_equal(transparent.values[0], sample.values[0])
    assert sample_of(form, png(color[..., 0])).remark == ""


def test_options_say_what_is_otherwise_unless_the_net_cannot_take_it():
    form = SampleForm.of(trained_on(max_pixel=16), RawImageConfig(resize_height=4, resize_width=6, max_pixel=255))
    assert form.remarks == (
        "max_pixel=255: of the training images it was 16",
        "images become 4 x 6; the training images were not resized",
    )
    assert values_of(form, np.full((1, 9, 9), 200, np.uint8)).tolist() == [[[200] * 6] * 4]
    cut = trained_on((-1, -1, -1, 1), height=4, width=6)
    for contract, crop_size in [(trained_on(), 0), (cut, 3)]:
        with pytest.raises(ConfigError, match=r"resize_height=5, resize_width=6: the bundle takes 4 x 6"):
            SampleForm.of(contract, RawImageConfig(resize_height=5, resize_width=6), crop_size=crop_size)


def test_a_bundle_that_does_not_know_its_training_images_says_so():
    (remark,) = SampleForm.of(contract_of((-1, 4, 6, 1))).remarks
    assert remark == (
        'input "x": the bundle does not say what was done to its training images; images become 4 x 6, and 255 is taken'
        " for the largest pixel; resize_height, resize_width and max_pixel say otherwise"
    )
    free = SampleForm.of(contract_of((-1, -1, -1, 1)), RawImageConfig(max_pixel=16))
    assert "images keep their size, and 16 is" in free.remarks[0]
    assert SampleForm.of(contract_of((-1, 2), "float32", "N, axis 1", "")).remarks == ()


def test_a_chunk_is_the_default_the_request_or_the_batch_of_the_net():
    unit_net, together = SimpleNamespace(unit_batch=1), SimpleNamespace(unit_batch=8)
    assert [chunk_size(unit_net, requested) for requested in (None, 7)] == [100, 7]
    assert [chunk_size(together, requested) for requested in (None, 8)] == [8, 8]
    with pytest.raises(ConfigError, match=r"batch_size=7: the bundle's net computes 8 samples together"):
        chunk_size(together, 7)
