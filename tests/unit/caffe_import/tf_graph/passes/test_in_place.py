from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import registered_types
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import run_passes
from caffe_import.tf_graph.passes.in_place import reads_overwritten_memory, types_with_memory_gradient
from tests.reference.operation_count import operation_count
from tests.reference.slow_windows import slow_lrn_across

pytestmark = pytest.mark.tf

X = np.array([[-1.5, -0.2, 0.4, 2.0]], np.float32)
DY = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)
SCALE, SHIFT = 3.0, -0.5


def neuron(layer_type: str, param: str = "") -> str:
    return f'layer {{ name: "n" type: "{layer_type}" bottom: "y" top: "y" {param} }}'


def in_place_net(*layers: str, batch: int = 1) -> NetSpec:
    """x, copied into y, then the layers in place on y."""
    head = (
        'force_backward: true layer { name: "in" type: "Input" top: "x" '
        f"input_param {{ shape {{ dim: {batch} dim: 4 }} }} }}"
        'layer { name: "copy" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 0 dim: 4 } } }'
    )
    return build_net_spec(parse_net(head + "".join(layers)), phase="TRAIN")


def overwritten_layers(net: NetSpec) -> dict[str, str]:
    return {net.layers[position].name: blob for position, blob in reads_overwritten_memory(net).items()}


# y = 3 y - 0.5, with a copy of its bottom: unharmed, but overwrites.
OVERWRITES = (
    'layer { name: "s" type: "Scale" bottom: "y" top: "y" param { lr_mult: 0 } param { lr_mult: 0 } '
    "scale_param { bias_term: true } }"
)


OVERWRITES_Z = OVERWRITES.replace('bottom: "y" top: "y"', 'bottom: "z" top: "w"')


def gradient(net: NetSpec, x: np.ndarray = X) -> np.ndarray:
    params = np.repeat(np.float32([SCALE, SHIFT]), 4) if net.params.n_params else np.zeros(0, np.float32)
    at_top = {"y": DY.reshape(net.blob_shapes["y"])}
    passes = run_passes(net, params, {"x": x}, layer_state=initial_layer_state(net), top_gradients=at_top)
    arrived = passes.blob_gradients["x"]
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
    net = in_place_net(neuron(layer_type, param), OVERWRITES)
    last = SCALE * value(X) + SHIFT
    np.testing.assert_allclose(gradient(net), DY * SCALE * from_content(last), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "derivative"),
    [("Sigmoid", lambda x: sigmoid(x) * (1 - sigmoid(x))), ("TanH", lambda x: 1 - np.tanh(x) ** 2),
     ("ReLU", lambda x: x > 0), ("ELU", lambda x: np.where(x > 0, 1, np.exp(x)))],
)  # fmt: skip
def test_alone_in_place_the_derivative_is_true(layer_type: str, derivative) -> None:
    net = in_place_net(neuron(layer_type))
    assert overwritten_layers(net) == {}
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
    net = in_place_net(neuron("Power", f"power_param {{ {param} }}"))
    last = run_passes(net, np.zeros(0, np.float32), {"x": X}, layer_state={}, top_gradients={}).blobs["y"]
    np.testing.assert_allclose(gradient(net), factor(last) ** 2, rtol=1e-4)


def test_log_in_place_writes_over_the_arriving_gradient() -> None:
    positive = np.abs(X) + 2
    net = in_place_net(neuron("Log"))
    np.testing.assert_allclose(gradient(net, positive), (1 / np.log(positive)) ** 2, rtol=1e-4)


def test_relu_before_dropout_is_left_to_its_own_kernel() -> None:
    dropout = 'layer { name: "d" type: "Dropout" bottom: "y" top: "y" }'
    assert overwritten_layers(in_place_net(neuron("ReLU"), dropout)) == {}
    assert overwritten_layers(in_place_net(neuron("ReLU"), dropout, OVERWRITES)) == {"n": "y"}


def test_an_overwritten_layer_leaves_a_later_layer_of_its_name_alone() -> None:
    later = neuron("Sigmoid").replace('top: "y"', 'top: "z"')
    net = in_place_net(neuron("Sigmoid"), OVERWRITES, later)
    last = SCALE * sigmoid(X) + SHIFT
    z = sigmoid(last)
    params = np.repeat(np.float32([SCALE, SHIFT]), 4)
    passes = run_passes(net, params, {"x": X}, layer_state=initial_layer_state(net), top_gradients={"z": DY})
    expected = DY * z * (1 - z) * SCALE * last * (1 - last)
    np.testing.assert_allclose(passes.blob_gradients["x"], expected, rtol=1e-4, atol=1e-6)


def test_the_search_is_linear_in_the_layers_on_one_blob() -> None:
    small, large = (in_place_net(*[neuron("ReLU")] * n) for n in (40, 160))
    reads_overwritten_memory(small)  # the first call loads the rules
    counts = [operation_count(lambda net=net: reads_overwritten_memory(net)) for net in (small, large)]
    assert counts[1] / counts[0] < 4.8  # 4 for linear work; 12 with a list of later layers for each layer


KEEPS_A_COPY = {
    "BatchNorm": "",
    "Bias": "",
    "Dropout": "dropout_param { dropout_ratio: 0.25 }",
    "PReLU": "",
    "Scale": "",
    "Threshold": "",
}
"""In-place types whose Backward_cpu reads no overwritten memory: they keep a copy (x_norm_, bottom_memory_, temp_,
rand_vec_), or read no values. A net's Python layer is differentiated by TensorFlow, in place too."""


def test_every_in_place_type_keeps_a_copy_or_has_a_memory_gradient() -> None:
    types = registered_types()
    in_place = {name for name, kind in types.items() if kind.in_place}
    reads = {name for name, kind in types.items() if kind.traits.reads_overwritten}
    assert reads == types_with_memory_gradient(), "traits.reads_overwritten, or @memory_gradient beside the emitter"
    assert in_place - reads - {"Python"} == set(KEEPS_A_COPY), "a line for a type that keeps a copy"


@pytest.mark.parametrize("layer_type", KEEPS_A_COPY)
def test_a_layer_with_a_copy_has_the_gradient_of_a_separate_top(layer_type: str) -> None:
    layer = neuron(layer_type, KEEPS_A_COPY[layer_type])
    x = np.concatenate([X, X**2])  # of one sample the gradient of BatchNorm is 0
    in_place = in_place_net(layer, OVERWRITES, batch=2)
    separate = in_place_net(layer.replace('top: "y"', 'top: "z"'), OVERWRITES_Z, batch=2)
    assert overwritten_layers(in_place) == {}
    gradients = []
    for net, top in ((in_place, "y"), (separate, "w")):
        params = np.linspace(0.5, 1.5, net.params.n_params, dtype=np.float32)
        state, at_top = initial_layer_state(net), {top: np.concatenate([DY, DY + 1])}
        run = run_passes(net, params, {"x": x}, layer_state=state, top_gradients=at_top, seed=3)
        gradients.append((run.blob_gradients["x"], run.param_gradients))
    np.testing.assert_array_equal(gradients[0][1], gradients[1][1])
    if layer_type == "Threshold":
        assert gradients[0][0] is None or not gradients[0][0].any()
    else:
        np.testing.assert_array_equal(gradients[0][0], gradients[1][0])
        assert gradients[0][0].any()


def deviation(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean((x - x.mean()) ** 2))) + 1e-9


ACROSS_CHANNELS = "mvn_param { across_channels: true }"


@pytest.mark.parametrize(
    ("layer_type", "param", "value", "from_memory"),
    [
        ("Softmax", "", lambda x: np.exp(x) / np.exp(x).sum(), lambda x, y, g: (g - (g * y).sum()) * y),
        ("Swish", "swish_param { beta: 2 }", lambda x: x * sigmoid(2 * x),
         lambda x, y, g: g * (2 * y + sigmoid(2 * x) * (1 - 2 * y))),
        ("ReLU6", "", lambda x: np.clip(x, 0, 6), lambda x, y, g: np.where((y > 0) & (y < 6), g, 0)),
        ("MVN", ACROSS_CHANNELS, lambda x: (x - x.mean()) / deviation(x),
         lambda x, y, g: -2 * (g * y).mean() * (y + y.sum()) / deviation(x)),
    ],
)  # fmt: skip
def test_layers_that_keep_something_and_read_the_rest(layer_type: str, param: str, value, from_memory) -> None:
    net = in_place_net(neuron(layer_type, param), OVERWRITES)
    last = SCALE * value(X) + SHIFT
    np.testing.assert_allclose(gradient(net), from_memory(X, last, DY * SCALE), rtol=1e-4, atol=1e-5)


def test_mvn_alone_in_place_writes_over_the_arriving_gradient() -> None:
    top = (X - X.mean()) / deviation(X)
    expected = -2 * (DY * top).mean() * (top + top.sum()) / deviation(X)
    np.testing.assert_allclose(gradient(in_place_net(neuron("MVN", ACROSS_CHANNELS))), expected, rtol=1e-4, atol=1e-5)


def test_lrn_divides_what_was_written_over_its_top() -> None:
    net = build_net_spec(
        parse_net(
            'force_backward: true layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 4 dim: 1 '
            'dim: 1 } } } layer { name: "n" type: "LRN" bottom: "x" top: "y" lrn_param { local_size: 3 alpha: 2 k: 1.5 '
            "} }" + OVERWRITES
        ),
        phase="TRAIN",
    )
    alpha, beta, k = 2, 0.75, 1.5
    x = X.reshape(4)
    squares = np.array([sum(x[j] ** 2 for j in range(max(i - 1, 0), min(i + 2, 4))) for i in range(4)])
    s = k + alpha / 3 * squares
    last = SCALE * slow_lrn_across(X.reshape(1, 4, 1, 1), n=3, alpha=alpha, beta=beta, k=k).reshape(4) + SHIFT
    g = DY.reshape(4) * SCALE
    shared = np.array([sum((g * last / s)[j] for j in range(max(i - 1, 0), min(i + 2, 4))) for i in range(4)])
    passes = run_passes(
        net,
        np.repeat(np.float32([SCALE, SHIFT]), 4),
        {"x": X.reshape(1, 4, 1, 1)},
        layer_state={},
        top_gradients={"y": DY.reshape(1, 4, 1, 1)},
    )
    expected = g * s**-beta - 2 * alpha * beta / 3 * x * shared
    np.testing.assert_allclose(passes.blob_gradients["x"].reshape(4), expected, rtol=1e-4)


def test_a_reshaped_blob_is_the_same_memory() -> None:
    reshaped = 'layer { name: "r" type: "Reshape" bottom: "y" top: "z" reshape_param { shape { dim: 2 dim: 2 } } }'
    over = OVERWRITES.replace('"y"', '"z"').replace("bias_term", "axis: 0 bias_term")
    net = in_place_net(neuron("Sigmoid"), reshaped, over)
    assert overwritten_layers(net) == {"n": "z"}
    last = SCALE * sigmoid(X) + SHIFT
    passes = run_passes(
        net,
        np.repeat(np.float32([SCALE, SHIFT]), 2),
        {"x": X},
        layer_state={},
        top_gradients={"z": DY.reshape(2, 2)},
    )
    np.testing.assert_allclose(passes.blob_gradients["x"], DY * SCALE * last * (1 - last), rtol=1e-4)


def moved_in_front(*layers: str) -> NetSpec:
    """x, moved by 0 into w by a layer that learns, hence needs w's gradient; then the layers."""
    head = (
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 4 } } }'
        'layer { name: "learns" type: "Bias" bottom: "x" top: "w" }'
    )
    return build_net_spec(parse_net(head + "".join(layers)), phase="TRAIN")


@pytest.mark.parametrize("flows", [True, False])
def test_an_unstable_product_divides_what_was_written_over_its_top(flows: bool) -> None:
    net = moved_in_front(
        'layer { name: "p" type: "Eltwise" bottom: "w" bottom: "x" top: "y" eltwise_param { operation: PROD '
        f"stable_prod_grad: false }} propagate_down: {str(flows).lower()} propagate_down: true }}",
        neuron("Exp", "loss_weight: 2"),
    )
    assert overwritten_layers(net) == {"p": "y"}
    run = run_passes(net, np.zeros(4, np.float32), {"x": X}, layer_state={}, top_gradients={})
    top = np.exp(X * X)
    expected = top / X * (2 * top) if flows else np.zeros((1, 4))
    np.testing.assert_allclose(run.param_gradients, expected[0], rtol=1e-5)


def test_no_gradient_leaves_an_overwritten_layer_where_none_is_propagated() -> None:
    net = moved_in_front(
        'layer { name: "n" type: "Sigmoid" bottom: "w" top: "y" propagate_down: false }',
        'layer { name: "learns_too" type: "Bias" bottom: "y" top: "y" loss_weight: 2 }',
    )
    assert overwritten_layers(net) == {"n": "y"}
    run = run_passes(net, np.zeros(8, np.float32), {"x": X}, layer_state={}, top_gradients={})
    np.testing.assert_array_equal(run.param_gradients, [0, 0, 0, 0, 2, 2, 2, 2])
