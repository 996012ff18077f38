import numpy as np
import pytest

from caffe_import.data.transform import TransformOptions
from caffe_import.files.mean_file import write_mean
from deepspark_ops.errors import DataError
from deepspark_ops.export.input_steps import TO_BGR, options_from_words, steps_in_words


def test_words_give_the_same_numbers_back(tmp_path):
    values = tuple(float(value) for value in np.float32([104.00698793, 116.66876762, 122.67891434]))
    options = TransformOptions(crop_size=227, mean_values=values, scale=float(np.float32(1 / 256)))
    reread = options_from_words([TO_BGR, *steps_in_words(options)], tmp_path)
    assert np.float32(reread.mean_values).tolist() == list(values)
    assert (reread.crop_size, reread.scale) == (227, options.scale)
    assert options_from_words(steps_in_words(TransformOptions()), tmp_path) == TransformOptions()


def test_a_mean_image_is_read_from_the_bundle(tmp_path):
    mean = np.random.default_rng(0).random((3, 5, 6), np.float32)
    write_mean(tmp_path / "mean.binaryproto", mean)
    words = steps_in_words(TransformOptions(mean=mean, crop_size=4))
    np.testing.assert_array_equal(options_from_words(words, tmp_path).mean, mean)


def test_a_step_of_another_release_is_refused(tmp_path):
    with pytest.raises(DataError, match='the step "turn it blue", which this release does not know; export again'):
        options_from_words(["turn it blue"], tmp_path)
