"""The peak of a step: small nets counted by hand; real nets against TensorFlow in ``tests/integration/devices``."""

from __future__ import annotations

from caffe_import.devices.layer_memory import layer_rows
from caffe_import.devices.layer_tensors import layer_tensors
from caffe_import.devices.pass_memory import pass_peak_bytes
from caffe_import.devices.segments import choose_segments
from caffe_import.devices.step_memory import step_memory
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from tests.reference.published_nets import build

TOP = 4 * 10 * 100


def chain(n_layers: int) -> NetSpec:
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 10 dim: 100 } } }\n'
    text += """layer { name: "ip" type: "InnerProduct" bottom: "x" top: "t0"
      inner_product_param { num_output: 100 bias_term: false } }"""
    text += "".join(f'layer {{ name: "l{k}" type: "TanH" bottom: "t{k}" top: "t{k + 1}" }}\n' for k in range(n_layers))
    text += f'layer {{ name: "loss" type: "EuclideanLoss" bottom: "t{n_layers}" bottom: "x" top: "loss" }}\n'
    return build_net_spec(parse_net(text), phase="TRAIN")


def test_a_pass_keeps_every_top_that_a_gradient_reads_and_one_gradient() -> None:
    # The input, eight tops of TanH, the loss, and the gradient that goes back through them, written over itself.
    assert pass_peak_bytes(layer_tensors(chain(8))) == TOP + 8 * TOP + 4 + TOP


def test_a_recomputed_pass_keeps_the_borders_and_one_segment() -> None:
    net = chain(8)
    names = [layer.name for layer in net.layers]
    segments = [(names.index("l0"), names.index("l4")), (names.index("l4"), names.index("loss"))]
    # In the last segment: the input, the border t0 of the first, four tops computed again, one gradient. TanH's
    # reads no bottom, so t4 is gone by then.
    assert pass_peak_bytes(layer_tensors(net), segments) == 2 * TOP + 4 * TOP + TOP


def test_rows_with_recompute_keep_what_crosses_a_border() -> None:
    net = chain(8)
    rows = {row.layer: row.activation_bytes for row in layer_rows(net, [("l0", "l1", "l2", "l3")])}
    assert [rows[f"l{k}"] // TOP for k in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rows["ip"] == TOP  # what the segment reads


def test_vectors_of_the_parameters_count_by_solver() -> None:
    net = build("caffenet", batch_size=1)
    vector = 4 * net.params.n_params
    sgd, adam = step_memory(net, 1), step_memory(net, 2)
    assert sgd.update_bytes == 7 * vector
    assert adam.update_bytes - sgd.update_bytes == 2 * vector
    assert step_memory(net, 1, iter_size=4).fed_bytes == 4 * 3 * 227 * 227 * 5 + 4 * 5
    assert sgd.total_bytes == sgd.update_bytes + sgd.fed_bytes  # few activations, many parameters


def test_twice_the_batch_takes_twice_the_activations() -> None:
    small, large = (step_memory(build("squeezenet", batch_size=size), 1) for size in (4, 8))
    doubled = small.with_batch(2)
    assert abs(doubled.total_bytes - large.total_bytes) < 0.01 * large.total_bytes


def test_recompute_halves_resnet() -> None:
    net = build("resnet50", batch_size=16)
    assert step_memory(net, 1, choose_segments(net)).total_bytes < 0.5 * step_memory(net, 1).total_bytes
