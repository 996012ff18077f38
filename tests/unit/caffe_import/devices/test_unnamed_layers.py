"""Where layers go that nobody placed."""

from __future__ import annotations

from caffe_import.devices.unnamed_layers import place_all
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec

NET = """
layer { name: "other" type: "Input" top: "other" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "scores1" type: "InnerProduct" bottom: "data" top: "scores1" inner_product_param { num_output: 2 } }
layer { name: "loss1" type: "SoftmaxWithLoss" bottom: "scores1" bottom: "label" top: "loss1" }
layer { name: "scores2" type: "InnerProduct" bottom: "data" top: "scores2" inner_product_param { num_output: 2 } }
layer { name: "tanh2" type: "TanH" bottom: "scores2" top: "scores2" }
layer { name: "loss2" type: "SoftmaxWithLoss" bottom: "scores2" bottom: "label" top: "loss2" }
"""
SPEC = build_net_spec(parse_net(NET), phase="TRAIN")


def test_data_is_where_it_is_read_first_and_its_label_too() -> None:
    device_of = place_all({"loss1": (1,), "scores1": (2,), "scores2": (0,)}, SPEC, 3).device_of
    assert [device_of[name] for name in ("data", "data_data_0_split", "label_data_1_split", "loss2")] == [2, 2, 2, 0]


def test_the_first_named_reader_decides_for_all_that_follows_from_data() -> None:
    device_of = place_all({"tanh2": (1,)}, SPEC, 2).device_of
    assert [device_of[name] for name in ("data", "scores1", "loss1", "scores2", "loss2")] == [1, 1, 1, 1, 1]
    assert device_of["other"] == 0


def test_one_source_is_placed_by_way_of_another() -> None:
    text = NET.replace(
        'name: "scores2" type: "InnerProduct" bottom: "data"', 'name: "scores2" type: "InnerProduct" bottom: "other"'
    )
    text += 'layer { name: "late" type: "Eltwise" bottom: "other" bottom: "data" top: "late" }'
    device_of = place_all({"tanh2": (1,)}, build_net_spec(parse_net(text), phase="TRAIN"), 2).device_of
    assert [device_of[name] for name in ("other", "scores2", "late", "data", "scores1")] == [1, 1, 1, 1, 1]


def test_split_layers_devices_are_kept_and_its_readers_follow_the_first() -> None:
    placement = place_all({"scores2": (1, 0), "scores1": (0,)}, SPEC, 2)
    assert dict(placement.split) == {"scores2": (1, 0)}
    assert placement.device_of["tanh2"] == 1
    assert "scores2" not in placement.device_of
