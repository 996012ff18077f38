from __future__ import annotations

import numpy as np
import pytest

from caffe_import.net_spec import NetSpec, build_net_spec
from caffe_import.prototxt import parse_net
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import run_passes
from caffe_import.tf_graph.in_place import reads_overwritten_memory

pytestmark = pytest.mark.tf

X = np.array([[-1.5, -0.2, 0.4, 2.0]], np.float32)
DY = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)
SCALE, SHIFT = 3.0, -0.5


def neuron(layer_type: str, param: str = "") -> str:
    return f'layer {{ name: "n" type: "{layer_type}" bottom: "y" top: "y" {param} }}'


def chain(*layers: str) -> NetSpec:
    """x, copied into y, then the layers in place on y."""
    head = (
        'force_backward: true layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 4 } } }'
        'layer { name: "copy" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 0 dim: 4 } } }'
    )
    return build_net_spec(parse_net(head + "".join(layers)), phase="TRAIN")


# y = 3 y - 0.5, with its own copy of its bottom: itself unharmed, but it overwrites.
OVERWRITES = (
    'layer { name: "s" type: "Scale" bottom: "y" top: "y" param { lr_mult: 0 } param { lr_mult: 0 } '
    "scale_param { bias_term: true } }"
)


def gradient(net: NetSpec, x: np.ndarray = X) -> np.ndarray:
    params = np.repeat(np.float32([SCALE, SHIFT]), 4) if net.params.n_params else np.zeros(0, np.float32)
    found = run_passes(net, params, {"x": x}, layer_state=initial_layer_state(net), top_gradients={"y": DY})
    arrived = found.blob_gradients["x"]
    assert arrived is not None
    return arrived


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("layer_type", "param", "value", "from_content"),
    [
        ("Sigmoid", "", sigmoid, lambda y: y * (1 - y)),
        ("TanH", "", np.tanh, lambda y: 1 - y * y),
        ("ReLU", "", lambda x: np.maximum(x, 0), lambda y: y > 0),
        ("ReLU", "relu_param { negative_slope: 0.1 }", lambda x: np.where(x > 0, x, 0.1 * x),
         lambda y: np.where(y > 0, 1, 0.1)),
        ("ELU", "elu_param { alpha: 0.7 }", lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)),
         lambda y: np.where(y > 0, 1, y + 0.7)),
        ("Exp", "exp_param { base: 2 scale: 0.5 }", lambda x: 2 ** (0.5 * x), lambda y: y * 0.5 * np.log(2)),
        ("BNLL", "", lambda x: np.log1p(np.exp(x)), sigmoid),
        ("Clip", "clip_param { min: -1 max: 1 }", lambda x: np.clip(x, -1, 1), lambda y: (y >= -1) & (y <= 1)),
    ],
)  # fmt: skip
def test_an_overwritten_layer_reads_the_last_content(layer_type: str, param: str, value, from_content) -> None:
    net = chain(neuron(layer_type, param), OVERWRITES)
    last = SCALE * value(X) + SHIFT
    np.testing.assert_allclose(gradient(net), DY * SCALE * from_content(last), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "derivative"),
    [("Sigmoid", lambda x: sigmoid(x) * (1 - sigmoid(x))), ("TanH", lambda x: 1 - np.tanh(x) ** 2),
     ("ReLU", lambda x: x > 0), ("ELU", lambda x: np.where(x > 0, 1, np.exp(x)))],
)  # fmt: skip
def test_alone_in_place_the_derivative_is_true(layer_type: str, derivative) -> None:
    net = chain(neuron(layer_type))
    assert reads_overwritten_memory(net) == frozenset()
    np.testing.assert_allclose(gradient(net), DY * derivative(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("param", "factor"),
    [
        ("scale: 0.5 shift: 0.1", lambda y: np.full_like(y, 0.5)),
        ("power: 2 scale: 0.5 shift: 3", lambda y: 2 * 0.5 * (0.5 * y + 3)),
        ("power: 3", lambda y: np.full_like(y, 3)),
        ("power: 3 scale: 0.5 shift: 4", lambda y: 1.5 * y / (0.5 * y + 4)),
        ("power: 0 shift: 4", np.zeros_like),
    ],
)
def test_power_in_place_writes_over_the_arriving_gradient(param: str, factor) -> None:
    net = chain(neuron("Power", f"power_param {{ {param} }}"))
    last = run_passes(net, np.zeros(0, np.float32), {"x": X}, layer_state={}, top_gradients={}).blobs["y"]
    np.testing.assert_allclose(gradient(net), factor(last) ** 2, rtol=1e-4)


def test_log_in_place_writes_over_the_arriving_gradient() -> None:
    positive = np.abs(X) + 2
    net = chain(neuron("Log"))
    np.testing.assert_allclose(gradient(net, positive), (1 / np.log(positive)) ** 2, rtol=1e-4)


def test_relu_before_dropout_is_left_to_its_own_kernel() -> None:
    dropout = 'layer { name: "d" type: "Dropout" bottom: "y" top: "y" }'
    assert reads_overwritten_memory(chain(neuron("ReLU"), dropout)) == frozenset()
    assert reads_overwritten_memory(chain(neuron("ReLU"), dropout, OVERWRITES)) == {"n"}
