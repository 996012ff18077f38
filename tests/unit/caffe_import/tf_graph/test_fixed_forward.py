"""A pass of fixed or prepared weights: its graph has nothing of weights alone, and the numbers are Caffe's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tensorflow.python.framework.func_graph import FuncGraph

from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph.fixed_weights import MOST_CONSTANT_BYTES
from caffe_import.tf_graph.predict import compile_fixed_forward, compile_prepared_forward
from tests.reference.parsed_net import net_of
from tests.reference.slow_normalization import slow_batch_norm, slow_scale

pytestmark = pytest.mark.tf

N, CHANNELS, SIZE, EPS = 2, 4, 6, 1e-3
X = np.random.default_rng(0).normal(size=(N, CHANNELS, SIZE, SIZE)).astype(np.float32)
FACTORS, BIASES, WEIGHT = np.array([0.7, -1.3, 2.0, 1.0]), np.array([0.1, -0.4, 0.0, 3.0]), 1.5
MEANS, VARIANCES = np.array([0.5, -1.0, 2.0, 0.0]), np.array([2.0, 3.0, 0.5, 1.0])
ON_WEIGHTS = {"Split", "SplitV", "Mul", "Rsqrt", "DivNoNan", "Reshape"}
"""Operations of weights alone in the graph of ``ForwardFunction``; these nets have no other use of them."""


DIMS = " ".join(f"dim: {extent}" for extent in X.shape)
DATA = f'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {DIMS} }} }} }}'


def text(options: str, *, tops: tuple[str, str, str] = ("c", "c", "c"), bias: str = "true", behind: str = "") -> str:
    conv, normed, scaled = tops
    return f"""
    {DATA}
    layer {{ name: "conv" type: "Convolution" bottom: "x" top: "{conv}"
      convolution_param {{ num_output: {CHANNELS} bias_term: {bias} {options} }} }}
    layer {{ name: "bn" type: "BatchNorm" bottom: "{conv}" top: "{normed}" batch_norm_param {{ eps: {EPS} }} }}
    layer {{ name: "scale" type: "Scale" bottom: "{normed}" top: "{scaled}" scale_param {{ bias_term: true }} }}
    layer {{ name: "relu" type: "ReLU" bottom: "{scaled}" top: "{scaled}" }}
    {behind}
    """


def params_of(net: NetSpec, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=net.params.n_params).astype(np.float32)
    values = {"bn[0]": MEANS, "bn[1]": VARIANCES, "bn[2]": WEIGHT, "scale[0]": FACTORS, "scale[1]": BIASES}
    for name, view in net.params.views(vector).items():
        if name in values:
            view[...] = values[name]
    return vector


def slow_convolution(weights: np.ndarray, bias: np.ndarray, *, group: int, pad: int, stride: int) -> np.ndarray:
    padded = np.pad(X.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    n_out, n_in, kernel, _ = weights.shape
    extent = (padded.shape[2] - kernel) // stride + 1
    top = np.empty((N, n_out, extent, extent))
    for n, out, row, column in np.ndindex(top.shape):
        first = out // (n_out // group) * n_in
        rows, columns = row * stride, column * stride
        window = padded[n, first : first + n_in, rows : rows + kernel, columns : columns + kernel]
        top[n, out, row, column] = (window * weights[out]).sum() + bias[out]
    return top


def slow_tops(
    net: NetSpec, vector: np.ndarray, *, group: int = 1, pad: int = 0, stride: int = 1
) -> tuple[np.ndarray, ...]:
    """Return the tops of convolution, BatchNorm and Scale with ReLU."""
    blobs = net.params.views(vector.astype(np.float64))
    bias = blobs.get("conv[1]", np.zeros(CHANNELS))
    convolved = slow_convolution(blobs["conv[0]"], bias, group=group, pad=pad, stride=stride)
    normalized = slow_batch_norm(convolved, MEANS / WEIGHT, VARIANCES / WEIGHT + EPS)
    return convolved, normalized, np.maximum(slow_scale(normalized, FACTORS, BIASES), 0)


def operations(graph: FuncGraph) -> Counter[str]:
    """Return how many operations of each type the outputs need."""
    needed, waiting = set(), [output.op for output in graph.outputs]
    while waiting:
        operation = waiting.pop()
        if operation not in needed:
            needed.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return Counter(operation.type for operation in needed)


WINDOWS = {
    "3x3": ("kernel_size: 3 pad: 1", {"pad": 1}),
    "1x1": ("kernel_size: 1", {}),
    "stride": ("kernel_size: 3 pad: 1 stride: 2", {"pad": 1, "stride": 2}),
    "groups": ("kernel_size: 3 group: 2", {"group": 2}),
    "depthwise": ("kernel_size: 3 pad: 1 group: 4", {"pad": 1, "group": 4}),
}


@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize(("options", "slow"), WINDOWS.values(), ids=WINDOWS)
def test_batch_norm_and_scale_are_in_the_weights(options: str, slow: dict[str, int], bias: str) -> None:
    net = net_of(text(options, bias=bias), phase="TEST")
    vector = params_of(net)
    forward = compile_fixed_forward(net, vector, n_threads=1)
    top = slow_tops(net, vector, **slow)[-1]
    vector[:] = np.nan  # the caller may write the vector
    np.testing.assert_allclose(forward({"x": X})["c"], top, rtol=0, atol=1e-6 * np.abs(top).max())
    assert not ON_WEIGHTS - {"Split"} & operations(forward.graph).keys()
    assert operations(forward.graph)["Transpose"] == 2  # the data to channels-last, the top back
    assert operations(forward.graph)["BiasAdd"] == 1


@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize(("options", "slow"), WINDOWS.values(), ids=WINDOWS)
def test_other_weights_are_prepared_without_another_graph(options: str, slow: dict[str, int], bias: str) -> None:
    net = net_of(text(options, bias=bias), phase="TEST")
    forward = compile_prepared_forward(net, n_threads=1)
    graphs = forward.graphs
    for seed in (1, 2):
        vector = params_of(net, seed)
        top = slow_tops(net, vector, **slow)[-1]
        values = forward.prepared(vector)
        vector[:] = np.nan  # the caller may write the vector
        for _ in range(2):
            blobs = forward.run(values, {"x": X}, layer_state={}).blobs
            np.testing.assert_allclose(blobs["c"], top, rtol=0, atol=1e-6 * np.abs(top).max())
    assert forward.graphs is graphs
    assert not ON_WEIGHTS - {"Split"} & operations(graphs.of_pass).keys()
    assert operations(graphs.of_pass)["Transpose"] == 2
    assert operations(graphs.of_pass)["BiasAdd"] == 1


def test_a_net_without_weights_is_prepared_too() -> None:
    relu = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "y" }'
    forward = compile_prepared_forward(net_of(DATA + relu, phase="TEST"), n_threads=1)
    blobs = forward.run(forward.prepared(np.zeros(0, np.float32)), {"x": X}, layer_state={}).blobs
    np.testing.assert_array_equal(blobs["y"], np.maximum(X, 0))


def test_a_top_that_is_a_weight_is_prepared() -> None:
    layer = 'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 3 } } }'
    forward = compile_prepared_forward(net_of(DATA + layer, phase="TEST"), n_threads=1, outputs=("p",))
    for vector in np.float32([[1, 2, 3], [4, 5, 6]]):
        blobs = forward.run(forward.prepared(vector), {"x": X}, layer_state={}).blobs
        np.testing.assert_array_equal(blobs["p"], vector)


def test_statistics_of_a_batch_and_the_weights_of_a_later_layer_are_prepared() -> None:
    """BatchNorm in a test net with the batch's statistics; the stored sums are read by a second BatchNorm."""
    sums = 'param { name: "m" } param { name: "v" } param { name: "w" }'
    layers = f"""
    layer {{ name: "a" type: "BatchNorm" bottom: "x" top: "a" {sums} batch_norm_param {{ use_global_stats: false }} }}
    layer {{ name: "b" type: "BatchNorm" bottom: "x" top: "b" {sums} batch_norm_param {{ use_global_stats: true }} }}
    """
    net = net_of(DATA + layers, phase="TEST")
    vector = np.concatenate([MEANS, VARIANCES, [WEIGHT]]).astype(np.float32)
    forward = compile_prepared_forward(net, n_threads=1)
    blobs = forward.run(forward.prepared(vector), {"x": X}, layer_state={}).blobs
    wide = X.astype(np.float64)
    means, n_values = wide.mean((0, 2, 3)), X[:, 0].size
    variances = wide.var((0, 2, 3))
    weight = 0.999 * WEIGHT + 1
    moved = (0.999 * MEANS + means) / weight, (0.999 * VARIANCES + variances * n_values / (n_values - 1)) / weight
    for name, statistics in (("a", (means, variances)), ("b", moved)):
        top = slow_batch_norm(wide, statistics[0], statistics[1] + 1e-5)
        np.testing.assert_allclose(blobs[name], top, rtol=0, atol=2e-6 * np.abs(top).max(), err_msg=name)


def test_blobs_between_are_right_for_who_asks_for_them() -> None:
    net = net_of(text("kernel_size: 3", tops=("c", "b", "s")), phase="TEST")
    vector = params_of(net)
    blobs = compile_fixed_forward(net, vector, n_threads=1, outputs=("c", "b", "s"))({"x": X})
    for name, top in zip("cbs", slow_tops(net, vector), strict=True):
        np.testing.assert_allclose(blobs[name], top, rtol=0, atol=1e-6 * np.abs(top).max())


def test_a_convolution_with_two_readers_is_computed_once() -> None:
    behind = 'layer { name: "sum" type: "Eltwise" bottom: "c" bottom: "s" top: "sum" }'
    net = net_of(text("kernel_size: 3", tops=("c", "b", "s"), behind=behind), phase="TEST")
    vector = params_of(net)
    forward = compile_fixed_forward(net, vector, n_threads=1)
    convolved, _, scaled = slow_tops(net, vector)
    top = convolved + scaled
    np.testing.assert_allclose(forward({"x": X})["sum"], top, rtol=0, atol=1e-6 * np.abs(top).max())
    assert operations(forward.graph)["Conv2D"] == 1


def test_large_weights_are_no_constants_of_the_graph() -> None:
    n_outputs = MOST_CONSTANT_BYTES // 4 // X[0].size
    layer = 'layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: {} }} }}'
    n_captured = []
    for n in (n_outputs, n_outputs + 1):
        net = net_of(DATA + layer.format(n), phase="TEST")
        vector = params_of(net)
        forward = compile_fixed_forward(net, vector, n_threads=1)
        blobs = net.params.views(vector.astype(np.float64))
        expected = X.reshape(N, -1).astype(np.float64) @ blobs["ip[0]"].T + blobs["ip[1]"]
        np.testing.assert_allclose(forward({"x": X})["ip"], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        n_captured.append(len(forward.graph.captures))
    assert n_captured == [0, 1]


def test_a_matrix_of_weights_is_transposed_once() -> None:
    layer = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }'
    net = net_of(DATA + layer, phase="TEST")
    vector = params_of(net)
    blobs = net.params.views(vector.astype(np.float64))
    expected = X.reshape(N, -1).astype(np.float64) @ blobs["ip[0]"].T + blobs["ip[1]"]
    fixed, prepared = compile_fixed_forward(net, vector, n_threads=1), compile_prepared_forward(net, n_threads=1)
    of_prepared = prepared.run(prepared.prepared(vector), {"x": X}, layer_state={}).blobs["ip"]
    for scores in (fixed({"x": X})["ip"], of_prepared):
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    for graph in (fixed.graph, prepared.graphs.of_pass):
        (matmul,) = (operation for operation in graph.get_operations() if operation.type == "MatMul")
        assert not matmul.get_attr("transpose_b")
        assert "Transpose" not in operations(graph)


def test_wrong_feeds_are_named() -> None:
    net = net_of(text("kernel_size: 3"), phase="TEST")
    forward = compile_fixed_forward(net, params_of(net), n_threads=1)
    with pytest.raises(ValueError, match=r'feed for blob "x" is missing; expected float32 \(2, 4, 6, 6\)'):
        forward({})
