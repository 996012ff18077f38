"""Where a placed net's blobs are, and where its data is sent."""

from __future__ import annotations

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.residence import residence
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec

NET = """
layer { name: "data" type: "Input" top: "x" top: "y" top: "unread"
  input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } shape { dim: 1 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 4 } }
layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "y" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "b" bottom: "y" top: "accuracy" }
"""


def test_a_fed_blob_goes_to_its_first_reader_and_a_split_stays_with_its_bottom() -> None:
    net = build_net_spec(parse_net(NET), phase="TRAIN")
    splits = {layer.name: 0 for layer in net.layers if layer.type == "Split"}
    assert len(splits) == 2  # of b and of y
    device_of = {**splits, "data": 0, "a": 0, "relu": 1, "loss": 2, "accuracy": 0}
    homes = residence(net, Placement(3, device_of, {"b": (1, 2)}), ("x", "y", "unread"))
    assert homes.feeds == {"x": 0, "y": 2, "unread": 0}
    bottoms = {name: devices for (name, _), devices in homes.bottoms.items()}
    assert bottoms["relu"] == (0,)
    assert bottoms["b"] == (1,)  # relu works in place: its content is on its device
    assert homes.layers["b"] == (1, 2)
    assert homes.blobs["b"] == 1  # the first of a split layer joins
    assert bottoms["loss"] == (1, 2)
    assert bottoms["accuracy"] == (1, 2)
    assert {homes.layers[name] for name in splits} == {(1,), (2,)}


def test_layers_of_one_name_read_their_own_bottoms() -> None:
    flat = 'layer { name: "relu" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }'
    net = build_net_spec(parse_net(NET + flat), phase="TRAIN")
    splits = {layer.name: 0 for layer in net.layers if layer.type == "Split"}
    device_of = {**splits, "data": 0, "a": 0, "relu": 1, "b": 1, "loss": 2, "accuracy": 0}
    bottoms = residence(net, Placement(3, device_of, {}), ("x", "y", "unread")).bottoms
    assert [devices for (name, _), devices in bottoms.items() if name == "relu"] == [(0,), (1, 1)]
