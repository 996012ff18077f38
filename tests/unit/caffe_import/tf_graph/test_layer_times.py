"""A kernel counts for the layer that it computes, for every name of the layer."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.layer_times import LayerTime, NetTimes, measure_layers

pytestmark = pytest.mark.tf

# Names that become one scope, a name within another name, and names of TensorFlow's own operations. The large
# convolution has 1,900 multiplications for each value of its top, so layers that read or write the top take a hundredth
# of its time, and less than its time even if a busy processor lets them wait.
NET = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 8 dim: 16 dim: 72 dim: 72 } shape { dim: 8 } } }
layer { name: "big one" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 96 kernel_size: 11
  stride: 2 weight_filler { type: "xavier" } } }
layer { name: "big_one" type: "ReLU" bottom: "a" top: "a" }
layer { name: "split" type: "Pooling" bottom: "a" top: "b" pooling_param { pool: AVE kernel_size: 4 stride: 4 } }
layer { name: "big_one/1x1" type: "Convolution" bottom: "b" top: "c" convolution_param { num_output: 4 kernel_size: 1
  weight_filler { type: "xavier" } } }
layer { name: "gradients" type: "InnerProduct" bottom: "c" top: "d" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "d" bottom: "label" top: "loss" }
"""


def measured(text: str) -> NetTimes:
    net = build_net_spec(parse_net(text), phase="TRAIN")
    feeds = {blob: np.ones(shape, np.float32) for blob, shape in fed_blobs(net).items()}
    return measure_layers(net, initial_vector(net, 1), feeds, n_threads=1, n_passes=5)


@pytest.fixture(scope="module")
def times() -> NetTimes:
    return measured(NET)


def by_name(times: NetTimes) -> dict[str, LayerTime]:
    return {row.layer: row for row in times.layers}


def test_every_layer_has_its_row_in_order(times: NetTimes) -> None:
    names = ["data", "big one", "big_one", "split", "big_one/1x1", "gradients", "loss"]
    assert [row.layer for row in times.layers] == names
    assert times.n_passes == 5


def test_layers_with_parameters_take_time_both_ways(times: NetTimes) -> None:
    rows = by_name(times)
    for name in ("big one", "split", "big_one/1x1", "gradients", "loss"):
        assert rows[name].forward_ms > 0, name
        assert rows[name].backward_ms > 0, name
    assert (rows["data"].forward_ms, rows["data"].backward_ms) == (0, 0)


def test_the_large_convolution_takes_the_most(times: NetTimes) -> None:
    rows = by_name(times)
    others_ms = sum(row.forward_ms for row in times.layers) - rows["big one"].forward_ms
    assert rows["big one"].forward_ms > others_ms
    assert times.other_ms < rows["big one"].backward_ms


def test_a_layer_in_another_ones_kernel_says_so(times: NetTimes) -> None:
    relu = by_name(times)["big_one"]
    assert (relu.forward_ms, relu.computed_with) == (0, "big one")
    assert relu.backward_ms > 0
    assert [row.computed_with for row in times.layers if row.layer != "big_one"] == [""] * 6


def test_a_net_without_a_loss_has_no_backward_pass() -> None:
    times = measured(NET[: NET.index('layer { name: "loss"')])
    assert sum(row.backward_ms for row in times.layers) == 0
    assert by_name(times)["gradients"].forward_ms > 0


def test_a_scale_in_the_kernel_of_its_batch_norm_says_so() -> None:
    # The scale has no operations and must not take the scope of "scale_1".
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 8 dim: 3 dim: 72 dim: 72 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 8 kernel_size: 3
      weight_filler { type: "xavier" } } }
    layer { name: "norm" type: "BatchNorm" bottom: "c" top: "c" }
    layer { name: "scale" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
    layer { name: "scale_1" type: "Sigmoid" bottom: "c" top: "d" }
    layer { name: "loss" type: "Reduction" bottom: "d" top: "loss" loss_weight: 1 }
    """
    rows = by_name(measured(text))
    assert (rows["scale"].forward_ms, rows["scale"].backward_ms, rows["scale"].computed_with) == (0, 0, "norm")
    for name in ("norm", "scale_1"):
        assert rows[name].forward_ms > 0
        assert rows[name].backward_ms > 0
