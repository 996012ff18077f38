"""Placement files: the line that places a layer, the device of other layers, and every mistake in a file."""

from __future__ import annotations

import pytest

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.placement_file import (
    format_placement,
    parse_placement,
    place_layers,
    read_placement,
)
from caffe_import.errors import PlacementError
from tests.reference.parsed_net import net_of

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 } } }
layer { name: "shift" type: "Power" bottom: "data" top: "shifted" power_param { shift: 1 } }
layer { name: "conv1" type: "Convolution" bottom: "shifted" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "sum" type: "Eltwise" bottom: "conv2" bottom: "conv2" top: "sum" }
layer { name: "fc6" type: "InnerProduct" bottom: "sum" top: "fc6" inner_product_param { num_output: 6 } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc7" bottom: "label" top: "loss" }
"""


def placed(text: str, n_devices: int = 2, net: str = NET) -> Placement:
    return place_layers(parse_placement(text, path="p.txt"), net_of(net), n_devices, path="p.txt")


def test_unnamed_layers_follow_the_first_bottom_and_sources_the_first_reader() -> None:
    placement = placed("conv1: 1\nconv2: 0\nfc7: 1")
    assert placement.device_of == {
        "data": 1,  # conv1 reads it, through "shift"
        "shift": 1,
        "conv1": 1,
        "relu1": 1,
        "conv2": 0,
        "conv2_conv2_0_split": 0,
        "sum": 0,
        "fc6": 0,
        "relu6": 0,
        "fc7": 1,
        "loss": 1,
        "label": 1,
    }
    assert placement.split == {}
    assert placement.n_devices == 2


def test_what_follows_a_split_layer_is_on_its_first_device() -> None:
    placement = placed("*: 0\nfc6: split 1 2 0", n_devices=3)
    assert placement.split == {"fc6": (1, 2, 0)}
    assert "fc6" not in placement.device_of
    assert placed("conv1: 0\nfc6: split 1 0").device_of["fc7"] == 1


def test_source_that_nothing_placed_reads_is_on_device_0() -> None:
    source = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }\n'
    assert placed("loss: 1", net=source + NET).device_of["x"] == 0


@pytest.mark.parametrize("last", [0, 1])
def test_of_several_lines_the_last_that_names_a_layer_counts(last: int) -> None:
    device_of = placed(f"*: {1 - last}\nconv[0-9]: {1 - last}\nconv2: {last}\n").device_of
    assert (device_of["conv1"], device_of["conv2"]) == (1 - last, last)


def test_comments_blank_lines_and_spaces_say_nothing() -> None:
    lines = parse_placement("# where\n\n  conv* : 0  # early\n\tfc#6:1\r\nfc a:b :  split  1   0 # both\n", path="p")
    assert [(line.number, line.pattern, line.devices) for line in lines] == [
        (3, "conv*", (0,)),
        (4, "fc#6", (1,)),
        (5, "fc a:b", (1, 0)),
    ]


def test_a_name_with_a_patterns_characters_names_itself() -> None:
    odd = NET.replace('name: "conv2"', 'name: "conv[2]:0"')
    assert placed("*: 0\nconv[2]:0: 1", net=odd).device_of["conv[2]:0"] == 1


def test_case_counts_and_splits_of_caffe_are_not_named() -> None:

    with pytest.raises(PlacementError, match=r"names no layer.*did you mean \"fc6\""):
        placed("FC6: 0")
    with pytest.raises(PlacementError, match="names no layer"):
        placed("*_split: 0")


def test_formatted_placement_reads_back_as_itself() -> None:
    names = NET.replace('name: "conv2"', 'name: "conv #2 [a]"').replace('name: "relu1"', 'name: " relu: 1 "')
    placement = placed("*: 1\nconv1: 0\nfc6: split 0 1", net=names)
    assert placed(format_placement(placement, net_of(names)), net=names) == placement


SHARED = NET.replace('top: "fc6" inner', 'top: "fc6" param { name: "w" } inner') + (
    'layer { name: "twin" type: "InnerProduct" bottom: "sum" top: "twin" param { name: "w" }'
    " inner_product_param { num_output: 6 } }"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv1 0", "p.txt:1: found 'conv1 0'; expected 'LAYERS: DEVICE' or 'LAYERS: split DEVICE DEVICE ...'"),
        ("*: 0\nconv1: gpu1", "p.txt:2: found 'conv1: gpu1'; expected 'LAYERS: DEVICE' or"),
        ("conv1: -1", "p.txt:1: found 'conv1: -1'; expected"),
        ("conv1: 0 1", "p.txt:1: found 'conv1: 0 1'; expected"),
        ("# nothing", "p.txt: places no layer; expected"),
        (
            "*: 0\n\nconv3: 1",
            "p.txt:3: 'conv3' names no layer of the training net; did you mean \"conv2\"?; its layers: da",
        ),
        ("conv1: 0\nconv2: 2", "p.txt:2: there is no device 2: allowed: 0 to 1; or give gpus_per_worker=3"),
        ("fc6: split 0 0", "p.txt:1: 'fc6: split 0 0' splits over too few devices; name two or more, each once"),
        ("fc6: split 1", "p.txt:1: 'fc6: split 1' splits over too few devices"),
        ("conv1: split 0 1", 'p.txt:1: layer "conv1" (Convolution) cannot be split; allowed: InnerProduct, whose'),
        ("fc7: split 0 1 2 3", 'p.txt:1: layer "fc7" has 3 outputs, fewer than the 4 devices to share them'),
        ("conv1: 0\n*: 1", "p.txt:1: later lines name every layer that 'conv1' names; the last line counts: put it"),
    ],
)
def test_a_wrong_line_is_one_message_with_its_number(text: str, message: str) -> None:
    with pytest.raises(PlacementError) as raised:
        placed(text, n_devices=4 if "3" in text else 2)
    refusal = str(raised.value)
    assert refusal.startswith(message.replace('"fc7" has', '"fc7" (InnerProduct) has')), refusal
    assert "\n" not in refusal
    assert raised.value.path == "p.txt"
    assert f":{raised.value.line}:" in refusal or not raised.value.line


def test_a_layer_that_shares_weights_cannot_be_split() -> None:
    with pytest.raises(
        PlacementError, match=r'"fc6" .InnerProduct. shares its weights with "twin" and cannot be split'
    ):
        placed("fc6: split 0 1", net=SHARED)
    with pytest.raises(PlacementError, match=r'"twin" .InnerProduct. shares its weights with "fc6"'):
        placed("twin: split 0 1", net=SHARED)


def test_the_only_device_is_0() -> None:
    with pytest.raises(PlacementError, match="there is no device 1: the only one is 0; or give gpus_per_worker=2"):
        placed("conv1: 1", n_devices=1)


def test_an_unreadable_file_is_refused_with_the_syntax(tmp_path) -> None:
    with pytest.raises(PlacementError, match=r"placement .*none.txt: No such file or directory; expected 'LAYERS: DEV"):
        read_placement(tmp_path / "none.txt", net_of(NET), 2)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(PlacementError, match=r"bytes.txt: is no UTF-8 text"):
        read_placement(tmp_path / "bytes.txt", net_of(NET), 2)
    (tmp_path / "good.txt").write_text("*: 0\nfc*: 1\n")
    assert read_placement(tmp_path / "good.txt", net_of(NET), 2) == placed("*: 0\nfc*: 1")
