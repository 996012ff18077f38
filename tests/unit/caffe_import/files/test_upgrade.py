"""Legacy forms against the texts that Caffe's own upgrade tools wrote."""

from __future__ import annotations

import logging
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
def test_net_equals_what_caffe_made_of_it(upgraded: Path) -> None:
    expected = text_format.Parse(upgraded.read_text(), caffe_pb2.NetParameter())
    assert read_net(original_of(upgraded)) == expected


@pytest.mark.parametrize("upgraded", [p for p in UPGRADED if p.name.startswith("solver")], ids=lambda path: path.stem)
def test_solver_equals_what_caffe_made_of_it(upgraded: Path) -> None:
    expected = text_format.Parse(upgraded.read_text(), caffe_pb2.SolverParameter())
    assert read_solver(original_of(upgraded)) == expected


def test_cases_are_there() -> None:
    assert len(UPGRADED) == 15


def test_current_net_is_returned_as_it_is() -> None:
    net = caffe_pb2.NetParameter(layer=[caffe_pb2.LayerParameter(name="a", type="ReLU")])
    assert upgrade_net(net) is net


def test_upgrade_leaves_its_argument_alone() -> None:
    net = text_format.Parse('layers { name: "a" type: RELU blobs_lr: 1 }', caffe_pb2.NetParameter())
    before = net.SerializeToString()
    assert upgrade_net(net).layer[0].type == "ReLU"
    assert net.SerializeToString() == before


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


def test_v0_option_of_another_type_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        net = parse_net('layers { layer { name: "r" type: "relu" kernelsize: 3 } }')
    assert net.layer[0] == caffe_pb2.LayerParameter(name="r", type="ReLU")
    assert 'layer "r": V0 type "relu" has no option "kernelsize"; dropped' in caplog.text


def test_v0_image_and_window_data_and_output_options() -> None:
    net = parse_net(
        """
        layers { layer { name: "i" type: "images" source: "l.txt" shuffle_images: true new_height: 5 } top: "x" }
        layers { layer { name: "w" type: "window_data" source: "w.txt" det_fg_threshold: 0.75 cropsize: 9 } top: "y" }
        layers { layer { name: "o" type: "hdf5_output" hdf5_output_param { file_name: "o.h5" } } bottom: "x" }
        layers { layer { name: "p" type: "pool" pool: AVE pad: 1 kernelsize: 2 stride: 2 } bottom: "x" top: "z" }
        """
    )
    images, window, output, pool = net.layer
    assert (images.image_data_param.shuffle, images.image_data_param.new_height) == (True, 5)
    assert (window.window_data_param.fg_threshold, window.transform_param.crop_size) == (0.75, 9)
    assert output.hdf5_output_param.file_name == "o.h5"
    assert (pool.pooling_param.pad, pool.pooling_param.pool) == (1, caffe_pb2.PoolingParameter.AVE)


def test_v0_padding_moves_into_pooling_too() -> None:
    net = parse_net(
        """
        layers { layer { name: "d" type: "data" } top: "x" }
        layers { layer { name: "q" type: "padding" pad: 3 } bottom: "x" top: "x2" }
        layers { layer { name: "p" type: "pool" kernelsize: 2 } bottom: "x2" top: "y" }
        """
    )
    assert [(layer.name, list(layer.bottom)) for layer in net.layer] == [("d", []), ("p", ["x"])]
    assert net.layer[1].pooling_param.pad == 3


def test_batch_norm_specs_are_frozen_only_if_there_are_three() -> None:
    spec = "param { lr_mult: 1 }"
    three, two = parse_net(
        f'layer {{ name: "a" type: "BatchNorm" {spec * 3} }} layer {{ name: "b" type: "BatchNorm" {spec * 2} }}'
    ).layer
    assert [(s.lr_mult, s.decay_mult) for s in three.param] == [(0, 0)] * 3
    assert [s.lr_mult for s in two.param] == [1, 1]


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
