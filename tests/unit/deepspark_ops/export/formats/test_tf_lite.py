"""model.tflite of small nets, run by TensorFlow Lite's interpreter on one sample and on a few."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from deepspark_ops.export.formats import tf_lite
from deepspark_ops.export.formats.exported_model import CannotHave
from deepspark_ops.export.tf_saved_model import SIGNATURE
from tests.reference.exported_models import exported_model
from tests.reference.slow_windows import slow_deconvolution
from tests.reference.small_nets import SMALL_NETS

pytestmark = [
    pytest.mark.tf,
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated"),  # the module moves to a separate package
]

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: %d dim: %d dim: %d } } }'
UPSAMPLED = """
layer { name: "up" type: "Deconvolution" bottom: "data" top: "up" convolution_param { num_output: %d group: %d
  kernel_size: %d stride: %d pad: %d bias_term: false weight_filler { type: "bilinear" } } }
layer { name: "out" type: "Flatten" bottom: "up" top: "out" }
"""


def runner_of(path: Path):
    return tf.lite.Interpreter(model_path=str(path)).get_signature_runner(SIGNATURE)


def upsampled(n_channels: int, kernel: int, stride: int, pad: int, size: tuple[int, int]) -> str:
    return INPUT % (n_channels, *size) + UPSAMPLED % (n_channels, n_channels, kernel, stride, pad)


def bilinear(size: int) -> np.ndarray:
    """Filler ``bilinear`` for one plane, from Caffe's include/caffe/filler.hpp."""
    f = ceil(size / 2)
    c = (size - 1) / (2 * f)
    ramp = [1 - abs(x / f - c) for x in range(size)]
    return np.outer(ramp, ramp)


@pytest.mark.parametrize("name", ["mobile", "fcn"])
def test_the_interpreter_computes_what_the_net_computes(name: str, tmp_path: Path) -> None:
    model, answers = exported_model(SMALL_NETS[name], tmp_path)
    tf_lite.FLOAT32.write(model)
    run = runner_of(tmp_path / "model.tflite")
    requests = model.requests()
    scores = run(**requests)["scores"]
    np.testing.assert_allclose(scores, answers["scores"], atol=1e-5)
    single = {key: values[2:3] for key, values in requests.items()}
    np.testing.assert_allclose(run(**single)["scores"], answers["scores"][2:3], atol=1e-5)


@pytest.mark.parametrize(
    ("n_channels", "kernel", "stride", "pad", "size"),
    [
        (21, 4, 2, 0, (3, 4)),  # FCN-8s: score2, upscore_pool4
        pytest.param(21, 16, 8, 0, (2, 3), marks=pytest.mark.long),  # FCN-8s: upscore8
        pytest.param(2, 64, 32, 16, (2, 1), marks=pytest.mark.long),  # FCN-32s
        (3, 5, 2, 2, (3, 2)),  # no multiple of the stride
        (3, 2, 3, 0, (2, 3)),  # gaps
        pytest.param(4, 3, 1, 1, (3, 3), marks=pytest.mark.long),
    ],
)
def test_upsampling_of_every_channel_by_itself(
    n_channels: int, kernel: int, stride: int, pad: int, size: tuple[int, int], tmp_path: Path
) -> None:
    model, answers = exported_model(upsampled(n_channels, kernel, stride, pad, size), tmp_path, n_samples=2)
    tf_lite.FLOAT32.write(model)
    ((name, expected),) = answers.items()
    output = runner_of(tmp_path / "model.tflite")(**model.requests())[name]
    (images,) = model.prepared().values()
    weights = np.tile(bilinear(kernel), (n_channels, 1, 1, 1))
    slow = slow_deconvolution(
        images, weights, stride=(stride,) * 2, pad=(pad,) * 2, dilation=(1, 1), group=n_channels
    ).reshape(expected.shape)
    bound = 1e-6 * np.abs(slow).max()
    np.testing.assert_allclose(output, slow, rtol=0, atol=bound)
    np.testing.assert_allclose(output, expected, rtol=0, atol=bound)


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(16, 8, 4), pytest.param(64, 32, 16, marks=pytest.mark.long)])
def test_upsampling_with_rounded_weights(kernel: int, stride: int, pad: int, tmp_path: Path) -> None:
    model, answers = exported_model(upsampled(3, kernel, stride, pad, (2, 2)), tmp_path, n_samples=2)
    model = replace(model, calibration=model.requests())
    ((name, expected),) = answers.items()
    for written, file, bound in (
        (tf_lite.FLOAT16, "model_float16.tflite", 2**-11),  # one rounding of each weight
        (tf_lite.INT8, "model_int8.tflite", 0.02),
    ):
        written.write(model)
        output = runner_of(tmp_path / file)(**model.requests())[name]
        assert np.abs(output - expected).max() <= bound * np.abs(expected).max()


def test_divisions_are_not_in_8_bits(tmp_path: Path) -> None:
    """Some windows of this net have a small sum, which is 0 in 8 bits. Its weights are random, so errors are large."""
    model, answers = exported_model(SMALL_NETS["mobile"], tmp_path)
    model = replace(model, calibration=model.requests())
    tf_lite.INT8.write(model)
    scores = runner_of(tmp_path / "model_int8.tflite")(**model.requests())["scores"]
    assert np.abs(scores - answers["scores"]).mean() < 0.15


STOCHASTIC = """
layer { name: "sum" type: "Convolution" bottom: "data" top: "sum" convolution_param { num_output: 2 kernel_size: 1
  bias_term: false weight_filler { type: "constant" value: 1 } } }
layer { name: "rectified" type: "%s" bottom: "sum" top: "rectified" }
layer { name: "pool" type: "Pooling" bottom: "rectified" top: "pool"
  pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 } }
layer { name: "out" type: "Flatten" bottom: "pool" top: "out" }
"""
RECTIFIERS = {"ReLU": lambda x: np.maximum(x, 0), "ELU": lambda x: np.where(x > 0, x, np.expm1(x))}


@pytest.mark.parametrize("rectifier", RECTIFIERS)
def test_stochastic_pooling_of_windows_without_a_positive_value(rectifier: str, tmp_path: Path) -> None:
    """After ReLU there are windows of zeros, after ELU windows whose sum is negative: the answer is 0."""
    model, answers = exported_model(INPUT % (3, 6, 6) + STOCHASTIC % rectifier, tmp_path, n_samples=4)
    ((argument, images),) = model.requests().items()
    images = np.array(images)
    images[:, :4] = 0  # two rows of windows below the mean
    model = replace(model, calibration={argument: images})
    values = RECTIFIERS[rectifier](((images.astype(float) - 100) / 64).sum(axis=3))
    windows = values.reshape(4, 3, 2, 3, 2).transpose(0, 1, 3, 2, 4).reshape(4, 9, 4)
    sums, squares = windows.sum(axis=2), (windows**2).sum(axis=2)
    expected = np.tile(np.where(sums > 0, squares / np.where(sums > 0, sums, 1), 0), 2)
    assert 0 < (expected > 0).mean() < 0.5
    for written, file, bound in (
        (tf_lite.FLOAT32, "model.tflite", 1e-5),
        (tf_lite.FLOAT16, "model_float16.tflite", 1e-5),
        (tf_lite.INT8, "model_int8.tflite", 0.03),
    ):
        if rectifier == "ELU" and written is not tf_lite.FLOAT32:
            break  # positive and negative values cancel each other, so 8 bits do not hold the sum
        written.write(model)
        answer = runner_of(tmp_path / file)(**{argument: images})[next(iter(answers))]
        np.testing.assert_allclose(answer, expected, rtol=0, atol=bound * expected.max(), err_msg=file)


def test_the_reader_runs_a_file_without_the_rest_of_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, answers = exported_model(SMALL_NETS["lenet"], tmp_path)
    tf_lite.FLOAT32.write(model)
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "def note():\n"
        "    if sys.argv[0].endswith('tf_lite_reader.py'):\n"
        f"        open({str(tmp_path / 'modules')!r}, 'w').write(' '.join(sys.modules))\n"
        "atexit.register(note)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (reading,) = tf_lite.FLOAT32.read(model)
    np.testing.assert_allclose(reading.answers["scores"], answers["scores"], atol=1e-5)
    modules = set((tmp_path / "modules").read_text().split())
    assert "tensorflow.lite.python.interpreter" in modules
    assert "tensorflow.python.eager.context" not in modules


@pytest.mark.long
def test_the_reader_falls_back_on_all_of_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, answers = exported_model(SMALL_NETS["lenet"], tmp_path)
    tf_lite.FLOAT32.write(model)
    reader = tmp_path / "reader.py"
    code = tf_lite._READER.read_text()
    needed = "from tensorflow.lite.python.interpreter import Interpreter"
    assert needed in code
    reader.write_text(code.replace(needed, "from tensorflow.lite.python.elsewhere import Interpreter"))
    monkeypatch.setattr(tf_lite, "_READER", reader)
    (reading,) = tf_lite.FLOAT32.read(model)
    np.testing.assert_allclose(reading.answers["scores"], answers["scores"], atol=1e-5)


def test_a_file_that_no_interpreter_reads_is_left_out(tmp_path: Path) -> None:
    model, _ = exported_model(SMALL_NETS["lenet"], tmp_path)
    tf_lite.FLOAT32.write(model)
    (model.folder / "model.tflite").write_bytes(b"no model")
    with pytest.raises(CannotHave, match="TensorFlow Lite's interpreter cannot run it: ValueError: "):
        tf_lite.FLOAT32.read(model)
