"""model.onnx of small nets, run by onnxruntime on a single sample, on a few, and on more than the exported batch."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from caffe_import.data.transform import TransformOptions
from deepspark_ops.export.formats import onnx_spread, tf_onnx
from deepspark_ops.export.formats.exported_model import CannotHave
from tests.reference.exported_models import exported_model
from tests.reference.small_nets import FIXED_BATCH_NET, SMALL_NETS

pytestmark = pytest.mark.tf


def session_of(model):
    tf_onnx.FORMAT.write(model)
    return onnxruntime.InferenceSession(model.folder / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", SMALL_NETS)
def test_onnxruntime_computes_what_the_net_computes(name, tmp_path):
    model, answers = exported_model(SMALL_NETS[name], tmp_path)
    expected = answers["scores"]
    session = session_of(model)
    (session_input,) = session.get_inputs()
    assert (session_input.name, session_input.shape[0]) == (model.inputs[0].name, "N")
    images = model.requests()[session_input.name]
    scores, classes = session.run(["scores", "classes"], {session_input.name: images})
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_array_equal(classes, expected.argmax(axis=1))
    assert classes.dtype == np.int64
    (row,) = session.run(["scores"], {session_input.name: images[2:3]})
    np.testing.assert_allclose(row, expected[2:3], atol=1e-5)
    (twice,) = session.run(["scores"], {session_input.name: np.concatenate([images, images])})
    np.testing.assert_allclose(twice, np.concatenate([expected, expected]), atol=1e-5)


def test_a_net_of_a_fixed_batch_has_none(tmp_path):
    model, _ = exported_model(FIXED_BATCH_NET, tmp_path)
    with pytest.raises(CannotHave, match=r"^the net computes with its whole batch"):
        tf_onnx.FORMAT.write(model)


def test_images_are_cut_and_their_mean_is_subtracted_inside(tmp_path):
    mean = np.random.default_rng(3).uniform(90, 150, (3, 18, 20)).astype(np.float32)
    options = TransformOptions(crop_size=16, mean=mean, scale=1 / 64)
    model, answers = exported_model(SMALL_NETS["cifar10_quick"], tmp_path, transform=options, stored=(3, 18, 20))
    expected = answers["scores"]
    session = session_of(model)
    assert session.get_inputs()[0].shape == ["N", 18, 20, 3]
    assert session.get_inputs()[0].type == "tensor(uint8)"
    np.testing.assert_allclose(session.run(["scores"], model.requests())[0], expected, atol=1e-5)


def test_any_size_is_taken_where_the_centre_alone_counts(tmp_path):
    options = TransformOptions(crop_size=16, mean_values=(100.0,), scale=1 / 64)
    model, answers = exported_model(SMALL_NETS["cifar10_quick"], tmp_path, transform=options, stored=(3, 19, 16))
    expected = answers["scores"]
    session = session_of(model)
    assert session.get_inputs()[0].shape == ["N", "images_axis_1", "images_axis_2", 3]
    np.testing.assert_allclose(session.run(["scores"], model.requests())[0], expected, atol=1e-5)


def test_the_file_holds_each_parameter_once_and_asks_for_nothing_but_the_images(tmp_path):
    model, _ = exported_model(SMALL_NETS["alexnet"], tmp_path)
    session_of(model)
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert [value.name for value in graph.input] == ["images"]
    assert graph.name == "alexnet"
    n_floats = sum(int(np.prod(array.dims)) for array in graph.initializer if array.data_type == onnx.TensorProto.FLOAT)
    assert model.params.size <= n_floats < model.params.size + 120  # bands of LRN and some numbers


class Served:
    """A model whose graph is a function of a test."""

    takes_any_batch = True

    def __init__(self, function, signature):
        self._function, self._signature = function, signature

    def with_blobs(self):
        return tf.function(self._function), self._signature


def without_form(x):
    return {"scores": tf.raw_ops.Betainc(a=x, b=x, x=x)}


def rolled(x):  # ONNX knows Roll along a fixed axis
    return {"scores": tf.roll(x, 1, axis=tf.cast(x[0, 0, 0, 0], tf.int32))}


def faulty(x):
    raise ValueError("a layer's fault")


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (without_form, CannotHave, r"^ONNX has no form of Betainc$"),
        (rolled, CannotHave, r"^make_sure failure: Can only convert Roll is axis is const$"),
        (faulty, ValueError, "a layer's fault"),
    ],
)
def test_what_tf2onnx_cannot_convert_is_named_and_a_fault_of_our_graph_is_raised(graph, error, message, tmp_path):
    model, _ = exported_model(SMALL_NETS["lenet"], tmp_path)
    served = Served(lambda x: graph(tf.cast(x, tf.float32)), model.served().signature())
    with pytest.raises(error, match=message):
        tf_onnx.FORMAT.write(replace(model, served=lambda: served))


UPSAMPLING = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 3 dim: 3 } } }
layer { name: "up" type: "Deconvolution" bottom: "data" top: "up" convolution_param { num_output: 2 group: 2
  kernel_size: 4 stride: 2 bias_term: false } }
layer { name: "out" type: "Flatten" bottom: "up" top: "out" }
"""


@pytest.mark.parametrize("fault", [KeyError("strides"), ValueError("ours")])
def test_a_fault_of_our_own_handler_is_raised(fault, tmp_path, monkeypatch):
    def faulty(*_):
        raise fault

    monkeypatch.setattr(onnx_spread, "HANDLERS", {"DepthwiseConv2dNativeBackpropInput": (faulty, [])})
    model, _ = exported_model(UPSAMPLING, tmp_path)
    with pytest.raises(type(fault)) as caught:
        tf_onnx.FORMAT.write(model)
    assert caught.value is fault


def test_a_form_of_ours_that_the_checker_refuses_is_raised(tmp_path, monkeypatch):
    def malformed(graph, node, _name, _arguments):
        output, shapes, dtypes = node.output[0], node.output_shapes, node.output_dtypes
        values = node.input[2]
        graph.remove_node(node.name)
        return graph.make_node("ConvTranspose", [values], outputs=[output], shapes=shapes, dtypes=dtypes)

    monkeypatch.setattr(onnx_spread, "HANDLERS", {"DepthwiseConv2dNativeBackpropInput": (malformed, [])})
    model, _ = exported_model(UPSAMPLING, tmp_path)
    with pytest.raises(onnx.checker.ValidationError):
        tf_onnx.FORMAT.write(model)


def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch):
    model, _ = exported_model(SMALL_NETS["lenet"], tmp_path)
    monkeypatch.setattr("caffe_import.extras.find_spec", lambda name: None if name == "tf2onnx" else object())
    with pytest.raises(CannotHave, match=r'format onnx needs tf2onnx, .*pip install "deepspark\[onnx\]"'):
        tf_onnx.FORMAT.write(model)
