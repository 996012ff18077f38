import numpy as np
import pytest

from caffe_import.data.transform import TransformOptions, transform_batch
from deepspark_ops.export.served_input import ServedInput
from deepspark_ops.export.tf_saved_model import preprocess

pytestmark = pytest.mark.tf


def served(transform, shape=(7, 9, 3), *, is_image=True, dtype="uint8"):
    return ServedInput("data", "images", shape, dtype, is_image, transform)


@pytest.mark.parametrize(
    "options",
    [
        TransformOptions(),
        TransformOptions(scale=0.5, mean_values=(10.0, 20.0, 30.0)),
        TransformOptions(crop_size=4, mean_values=(7.0,)),
        TransformOptions(crop_size=5, scale=0.25, mean=np.arange(189, dtype=np.float32).reshape(3, 7, 9)),
        TransformOptions(mean=np.arange(189, dtype=np.float32).reshape(3, 7, 9)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_model_prepares_images_as_the_numpy_transform_does(options, dtype):
    stored = np.random.default_rng(0).integers(0, 256, (2, 3, 7, 9)).astype(dtype)
    wanted = transform_batch(stored, options, phase="TEST")
    one = served(options, dtype=dtype)
    found = preprocess(one.from_stored(stored), one).numpy()
    np.testing.assert_array_equal(found, wanted)


def test_from_stored_puts_red_first_and_channels_last():
    stored = np.zeros((1, 3, 2, 2), np.uint8)
    stored[0, 2, 0, 1] = 200  # red of the upper right pixel, stored BGR
    image = served(None, (2, 2, 3)).from_stored(stored)
    assert image.shape == (1, 2, 2, 3)
    assert image[0, 0, 1].tolist() == [200, 0, 0]


def test_gray_and_vectors_are_left_as_they_are():
    gray = np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2)
    one = served(TransformOptions(), (2, 2, 1))
    np.testing.assert_array_equal(preprocess(one.from_stored(gray), one).numpy(), gray.astype(np.float32))
    vector = np.arange(3, dtype=np.float32)[np.newaxis]
    plain = served(None, (3,), is_image=False, dtype="float32")
    np.testing.assert_array_equal(preprocess(plain.from_stored(vector), plain).numpy(), vector)
    assert plain.contract().axes == "N, axis 1"
