import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.export.input_steps import FILL
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict.record import InputRecord
from deepspark_ops.predict.samples import BundleForm, SampleForm, sample_chunks


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
    plain = SampleForm.of(contract, feature_names=("age", "height"))
    fills = SampleForm.of(contract.model_copy(update={"preprocessing": (FILL,)}))
    gap = np.float32([1, np.nan])
    assert error_of(plain, gap) == "height (number 1) is missing, and the bundle does not fill missing numbers"
    np.testing.assert_array_equal(values_of(fills, gap), gap)
    assert error_of(fills, np.float32([np.inf, np.nan])) == "number 0 is not finite in float32"


def test_records_are_taken_only_as_far_as_they_are_needed():
    taken = []

    def records():
        for number in range(1000):
            taken.append(number)
            yield InputRecord(str(number), np.zeros((1, 2, 2), np.uint8))

    form = SampleForm.of(contract_of((-1, 2, 2, 1)))
    chunks = sample_chunks(records(), BundleForm((form,)).sample, size=10, n_threads=2)
    first = next(chunks)
    assert ([sample.id for sample in first], len(taken)) == ([str(number) for number in range(10)], 20)
    assert sum(len(chunk) for chunk in chunks) == 990


def test_several_inputs_are_given_by_name(tmp_path):
    numbers = SampleForm.of(contract_of((-1, 2), "float32", "N, axis 1", ""))
    image = SampleForm.of(contract_of((-1, 1, 2, 1)).model_copy(update={"name": "y"}))
    form = BundleForm((numbers, image))
    given = {"y": np.zeros((1, 1, 2), np.uint8), "x": np.float32([1, 2])}
    first, second = form.sample(InputRecord("id", given)).values
    assert (first.tolist(), second.shape) == ([1, 2], (1, 1, 2))
    assert form.sample(InputRecord("id", {"x": given["x"]})).error == 'input "y" is missing'
    assert form.sample(InputRecord("id", {**given, "x": None})).error == 'input "x" is missing'
    found = form.sample(InputRecord("id", {**given, "x": np.zeros(3)})).error
    assert found == 'input "x": 3 numbers, the bundle takes 2'
    with pytest.raises(ConfigError, match=r"takes 2 inputs \(x, y\); only a table .* e\.g\. x=COLUMN,y=COLUMN"):
        form.only_input(tmp_path)
    assert BundleForm((image,)).only_input(tmp_path) is image
