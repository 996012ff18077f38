"""A pass of fixed weights: nothing that depends on weights alone is left in the graph, and the numbers are Caffe's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph.fixed_weights import MOST_CONSTANT_BYTES
from caffe_import.tf_graph.predict import FixedForward, compile_fixed_forward
from tests.reference.parsed_net import net_of
from tests.reference.slow_normalization import slow_batch_norm, slow_scale

pytestmark = pytest.mark.tf

N, CHANNELS, SIZE, EPS = 2, 4, 6, 1e-3
X = np.random.default_rng(0).normal(size=(N, CHANNELS, SIZE, SIZE)).astype(np.float32)
FACTORS, BIASES, WEIGHT = np.array([0.7, -1.3, 2.0, 1.0]), np.array([0.1, -0.4, 0.0, 3.0]), 1.5
MEANS, VARIANCES = np.array([0.5, -1.0, 2.0, 0.0]), np.array([2.0, 3.0, 0.5, 1.0])
ON_WEIGHTS = {"Split", "SplitV", "Mul", "Rsqrt", "DivNoNan", "Reshape"}
"""Operations of weights alone in the graph of ``ForwardFunction``; these nets have no other use of them."""


def text(options: str, *, tops: tuple[str, str, str] = ("c", "c", "c"), bias: str = "true", behind: str = "") -> str:
    conv, normed, scaled = tops
    dims = " ".join(f"dim: {extent}" for extent in X.shape)
    return f"""
    layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}
    layer {{ name: "conv" type: "Convolution" bottom: "x" top: "{conv}"
      convolution_param {{ num_output: {CHANNELS} bias_term: {bias} {options} }} }}
    layer {{ name: "bn" type: "BatchNorm" bottom: "{conv}" top: "{normed}" batch_norm_param {{ eps: {EPS} }} }}
    layer {{ name: "scale" type: "Scale" bottom: "{normed}" top: "{scaled}" scale_param {{ bias_term: true }} }}
    layer {{ name: "relu" type: "ReLU" bottom: "{scaled}" top: "{scaled}" }}
    {behind}
    """


def params_of(net: NetSpec) -> np.ndarray:
    rng = np.random.default_rng(1)
    vector = rng.normal(size=net.params.n_params).astype(np.float32)
    known = {"bn[0]": MEANS, "bn[1]": VARIANCES, "bn[2]": WEIGHT, "scale[0]": FACTORS, "scale[1]": BIASES}
    for name, view in net.params.views(vector).items():
        if name in known:
            view[...] = known[name]
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


def operations(forward: FixedForward) -> Counter[str]:
    return Counter(operation.type for operation in forward.graph.get_operations())


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
    assert not ON_WEIGHTS - {"Split"} & operations(forward).keys()
    assert operations(forward)["Transpose"] == 2  # the data to channels-last, the top back
    assert operations(forward)["BiasAdd"] == 1


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
    assert operations(forward)["Conv2D"] == 1


def test_large_weights_are_no_constants_of_the_graph() -> None:
    n_outputs = MOST_CONSTANT_BYTES // 4 // X[0].size
    layer = 'layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: {} }} }}'
    dims = " ".join(f"dim: {extent}" for extent in X.shape)
    data = f'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}'
    n_captured = []
    for n in (n_outputs, n_outputs + 1):
        net = net_of(data + layer.format(n), phase="TEST")
        vector = params_of(net)
        forward = compile_fixed_forward(net, vector, n_threads=1)
        blobs = net.params.views(vector.astype(np.float64))
        expected = X.reshape(N, -1).astype(np.float64) @ blobs["ip[0]"].T + blobs["ip[1]"]
        np.testing.assert_allclose(forward({"x": X})["ip"], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        n_captured.append(len(forward.graph.captures))
    assert n_captured == [0, 1]


def test_wrong_feeds_are_named() -> None:
    net = net_of(text("kernel_size: 3"), phase="TEST")
    forward = compile_fixed_forward(net, params_of(net), n_threads=1)
    with pytest.raises(ValueError, match=r'feed for blob "x" is missing; expected float32 \(2, 4, 6, 6\)'):
        forward({})
