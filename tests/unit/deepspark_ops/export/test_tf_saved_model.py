from collections import Counter

import numpy as np
import pytest

from caffe_import.data.transform import TransformOptions, transform_batch
from caffe_import.tf_graph import fixed_weights
from deepspark_ops.export.served_input import ServedInput
from deepspark_ops.export.tf_saved_model import ServedModel, load_saved_model, preprocess, write_saved_model
from tests.reference.exported_models import exported_model

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
    expected = transform_batch(stored, options, phase="TEST")
    served_input = served(options, dtype=dtype)
    prepared = preprocess(served_input.from_stored(stored), served_input).numpy()
    np.testing.assert_array_equal(prepared, expected)


def test_from_stored_puts_red_first_and_channels_last():
    stored = np.zeros((1, 3, 2, 2), np.uint8)
    stored[0, 2, 0, 1] = 200  # red of the upper right pixel, stored BGR
    image = served(None, (2, 2, 3)).from_stored(stored)
    assert image.shape == (1, 2, 2, 3)
    assert image[0, 0, 1].tolist() == [200, 0, 0]


def test_gray_and_vectors_are_left_as_they_are():
    gray = np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2)
    served_input = served(TransformOptions(), (2, 2, 1))
    np.testing.assert_array_equal(
        preprocess(served_input.from_stored(gray), served_input).numpy(), gray.astype(np.float32)
    )
    vector = np.arange(3, dtype=np.float32)[np.newaxis]
    plain = served(None, (3,), is_image=False, dtype="float32")
    np.testing.assert_array_equal(preprocess(plain.from_stored(vector), plain).numpy(), vector)
    assert plain.contract().axes == "N, axis 1"


NORMED = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 bias_term: false weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.mark.parametrize("most_constant_bytes", [0, 2**20])
def test_a_request_orders_no_weights(monkeypatch, tmp_path, most_constant_bytes):
    monkeypatch.setattr(fixed_weights, "MOST_CONSTANT_BYTES", most_constant_bytes)
    model, answers = exported_model(NORMED, tmp_path)
    served = model.served()
    write_saved_model(tmp_path / "saved_model", served)
    # The kernel with BatchNorm and Scale, its offset, weights and bias of the inner product.
    assert len(served.kernels) == (4 if most_constant_bytes == 0 else 0)
    operations = Counter(operation.type for operation in served.serve.get_concrete_function().graph.get_operations())
    assert not {"Split", "SplitV", "Rsqrt"} & operations.keys()
    assert operations["Transpose"] == 3  # the request to Caffe's order, to channels-last, and back behind the ReLU
    served_answers = load_saved_model(tmp_path / "saved_model")(model.requests())
    np.testing.assert_allclose(served_answers["scores"], answers["scores"], atol=1e-6)


def test_the_trial_traces_each_of_both_nets_once(tmp_path, monkeypatch):
    traced = []
    run = ServedModel._run
    monkeypatch.setattr(ServedModel, "_run", lambda self, net, *rest: traced.append(net) or run(self, net, *rest))
    model, _ = exported_model(NORMED, tmp_path)
    assert model.served().takes_any_batch
    assert len(traced) == 2
