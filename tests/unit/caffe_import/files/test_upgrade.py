"""Legacy forms against the texts that Caffe's own upgrade tools wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from caffe_import.errors import NetError, PrototxtError
from caffe_import.files.prototxt import parse_net, parse_solver, read_net, read_solver
from caffe_import.files.upgrade import upgrade_net
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"
UPGRADED = sorted((CAFFE / "upgrade").glob("*.upgraded.prototxt"))


def original_of(upgraded: Path) -> Path:
    name = upgraded.name.replace(".upgraded", "")
    return next(path for path in (CAFFE / "upgrade" / name, CAFFE / "nets" / name) if path.exists())


@pytest.mark.parametrize(
    "upgraded", [p for p in UPGRADED if not p.name.startswith("solver")], ids=lambda path: path.stem
)
def test_net_equals_caffes_upgraded_net(upgraded: Path) -> None:
    expected = text_format.Parse(upgraded.read_text(), caffe_pb2.NetParameter())
    assert read_net(original_of(upgraded)) == expected


@pytest.mark.parametrize("upgraded", [p for p in UPGRADED if p.name.startswith("solver")], ids=lambda path: path.stem)
def test_solver_equals_caffes_upgraded_solver(upgraded: Path) -> None:
    expected = text_format.Parse(upgraded.read_text(), caffe_pb2.SolverParameter())
    assert read_solver(original_of(upgraded)) == expected


def test_cases_are_there() -> None:
    assert len(UPGRADED) == 15


def test_current_net_is_returned_as_it_is() -> None:
    net = caffe_pb2.NetParameter(layer=[caffe_pb2.LayerParameter(name="a", type="ReLU")])
    assert upgrade_net(net) is net


def test_upgrade_leaves_its_argument_alone() -> None:
    net = text_format.Parse('layers { name: "a" type: RELU blobs_lr: 1 }', caffe_pb2.NetParameter())
    old_bytes = net.SerializeToString()
    assert upgrade_net(net).layer[0].type == "ReLU"
    assert net.SerializeToString() == old_bytes


@pytest.mark.parametrize("name", [n for n in caffe_pb2.V1LayerParameter.LayerType.keys() if n != "NONE"])
def test_every_v1_type_has_a_current_name(name: str) -> None:
    upgraded = parse_net(f'layers {{ name: "x" type: {name} }}').layer[0].type
    assert upgraded.lower() == {"SOFTMAX_LOSS": "softmaxwithloss"}.get(name, name.replace("_", "").lower())


def test_v1_weights_and_specs_travel_along() -> None:
    net = parse_net(
        'layers { name: "a" type: CONVOLUTION blobs { num: 1 data: 2 } blobs_lr: 1 blobs_lr: 2 param: "w" }'
    )
    layer = net.layer[0]
    assert list(layer.blobs[0].data) == [2]
    assert [(spec.name, spec.lr_mult) for spec in layer.param] == [("w", 1), ("", 2)]


def test_batch_norm_specs_are_frozen_only_if_there_are_three() -> None:
    spec = "param { lr_mult: 1 }"
    three, two = parse_net(
        f'layer {{ name: "a" type: "BatchNorm" {spec * 3} }} layer {{ name: "b" type: "BatchNorm" {spec * 2} }}'
    ).layer
    assert [(s.lr_mult, s.decay_mult) for s in three.param] == [(0, 0)] * 3
    assert [s.lr_mult for s in two.param] == [1, 1]


@pytest.mark.parametrize(
    "spec",
    ["lr_mult: 0 decay_mult: 1", "lr_mult: 1 decay_mult: 0", "lr_mult: 0", "decay_mult: 0", ""],
)
def test_one_spec_that_is_not_frozen_is_enough_for_the_upgrade(spec: str) -> None:
    """A missing multiplier is 1, so that only ``lr_mult: 0 decay_mult: 0`` is frozen."""
    frozen = "param { lr_mult: 0 decay_mult: 0 }"
    (layer,) = parse_net(f'layer {{ name: "a" type: "BatchNorm" {frozen * 2} param {{ {spec} }} }}').layer
    assert [(s.lr_mult, s.decay_mult, s.HasField("lr_mult"), s.HasField("decay_mult")) for s in layer.param] == [
        (0, 0, True, True)
    ] * 3


def test_input_without_any_dimension_is_dropped_as_caffe_does() -> None:
    net = parse_net('input: "x" layer { name: "r" type: "ReLU" }')
    assert [layer.name for layer in net.layer] == ["r"]
    assert len(net.input) == 0


def test_too_few_input_dims_name_the_input() -> None:
    with pytest.raises(NetError, match='input "b" has no dimensions: 2 inputs but 4 input_dim'):
        parse_net('input: "a" input: "b" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1')


def test_both_solver_types_are_refused() -> None:
    with pytest.raises(PrototxtError, match=r'^s\.prototxt: solver has type: "Adam" and the old solver_type: SGD'):
        parse_solver('type: "Adam" solver_type: SGD', path="s.prototxt")
