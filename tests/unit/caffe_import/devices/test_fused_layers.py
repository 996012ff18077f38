"""Pairs of BatchNorm and Scale in one kernel, and the tops and memory of such a pair."""

from __future__ import annotations

import pytest

from caffe_import.devices.compute_plan import ComputePlan, Placement
from caffe_import.devices.fused_layers import fused_scales
from caffe_import.devices.layer_memory import layer_rows
from caffe_import.devices.segments import allowed_cuts
from caffe_import.devices.stages import uncut_parts
from caffe_import.net.net_spec import NetSpec
from tests.reference.parsed_net import net_of
from tests.reference.published_nets import published_net

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 dim: 5 dim: 6 } } }'
CONVOLUTION = (
    'layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 2 kernel_size: 1 } }'
)
BATCH_NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "c" top: "b" }'
SCALE = 'layer { name: "scale" type: "Scale" bottom: "b" top: "s" scale_param { bias_term: true } }'
LOSS = 'layer { name: "loss" type: "Reduction" bottom: "s" top: "loss" loss_weight: 1 }'
VALUES = 4 * 4 * 2 * 5 * 6
"""Bytes of each blob behind the convolution."""


def net_with(*, batch_norm: str = BATCH_NORM, scale: str = SCALE, between: str = "", behind: str = "") -> NetSpec:
    return net_of("\n".join([INPUT, CONVOLUTION, batch_norm, between, scale, behind, LOSS]))


def pairs(net: NetSpec, plan: ComputePlan | None = None) -> dict[str, str]:
    return {name: scale.name for name, scale in fused_scales(net, plan or ComputePlan()).items()}


@pytest.mark.parametrize(
    ("batch_norm", "scale"),
    [
        (BATCH_NORM, SCALE),
        (BATCH_NORM, SCALE.replace('"s"', '"b"')),
        (BATCH_NORM.replace('"b"', '"c"'), SCALE.replace('"b"', '"c"')),
        (BATCH_NORM, SCALE.replace("bias_term: true", "")),
        (BATCH_NORM.replace("}", "batch_norm_param { use_global_stats: true } }"), SCALE),
    ],
    ids=["own_tops", "scale_in_place", "batch_norm_in_place", "no_bias", "stored_statistics"],
)
def test_a_scale_that_alone_reads_the_batch_norm_joins_it(batch_norm: str, scale: str) -> None:
    top = scale.split('top: "')[1][0]
    text = "\n".join([INPUT, CONVOLUTION, batch_norm, scale, LOSS.replace('"s"', f'"{top}"')])
    assert pairs(net_of(text)) == {"bn": "scale"}


def test_pairs_whose_layers_alternate_are_seen() -> None:
    text = "\n".join(
        f'layer {{ name: "{kind}{branch}" type: "{kind}" bottom: "{bottom}{branch}" top: "{top}{branch}" }}'
        for kind, bottom, top in (("Split", "c", "d"), ("BatchNorm", "d", "b"), ("Scale", "b", "s"))
        for branch in "12"
    )
    text = text.replace('bottom: "c1"', 'bottom: "c"').replace('bottom: "c2"', 'bottom: "c"')
    assert pairs(net_of(f"{INPUT}{CONVOLUTION}{text}")) == {"BatchNorm1": "Scale1", "BatchNorm2": "Scale2"}


def test_every_pair_of_a_resnet_is_seen() -> None:
    net = published_net("resnet50", batch_size=1)
    assert len(pairs(net)) == sum(layer.type == "BatchNorm" for layer in net.layers) == 53


@pytest.mark.parametrize(
    "net",
    [
        net_with(behind='layer { name: "tanh" type: "TanH" bottom: "b" top: "t" }'),
        net_with(between='layer { name: "relu" type: "ReLU" bottom: "b" top: "b" }'),
        net_with(batch_norm=BATCH_NORM.replace("}", "loss_weight: 1 }")),
        net_with(scale=SCALE.replace("bias_term", "axis: 0 bias_term")),
        net_with(scale=SCALE.replace("bias_term", "axis: 3 bias_term")),
        net_with(scale=SCALE.replace("bias_term", "num_axes: 2 bias_term")),
        net_with(scale=SCALE.replace("bias_term", "num_axes: 0 bias_term")),
        net_with(
            scale=SCALE.replace('bottom: "b"', 'bottom: "b" bottom: "c"').replace("bias_term", "axis: 0 bias_term")
        ),
        net_with(
            batch_norm=BATCH_NORM.replace("}", 'param { name: "m" lr_mult: 0 } }'),
            scale=SCALE.replace("scale_param", 'param { name: "m" lr_mult: 0 } scale_param'),
        ),
        net_of("\n".join([INPUT.replace("dim: 6", "dim: 6 dim: 2"), BATCH_NORM.replace('"c"', '"x"'), SCALE, LOSS])),
        net_of("\n".join([INPUT.replace("dim: 5 dim: 6", ""), BATCH_NORM.replace('"c"', '"x"'), SCALE, LOSS])),
    ],
    ids=[
        "second_reader",
        "layer_between",
        "loss_of_the_batch_norm",
        "axis_0",
        "axis_3",
        "two_axes",
        "one_number",
        "factors_from_a_blob",
        "shares_a_statistic",
        "five_axes",
        "two_axes_of_the_blob",
    ],
)
def test_other_layers_stay_two(net: NetSpec) -> None:
    assert pairs(net) == {}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (ComputePlan(placement=Placement(2, {"in": 0, "conv": 0, "bn": 0, "scale": 1, "loss": 1})), {}),
        (ComputePlan(placement=Placement(2, {"in": 0, "conv": 0, "bn": 1, "scale": 1, "loss": 1})), {"bn": "scale"}),
        (ComputePlan(recompute=(("conv", "bn"),)), {}),
        (ComputePlan(recompute=(("scale",),)), {}),
        (ComputePlan(recompute=(("bn", "scale"),)), {"bn": "scale"}),
        (ComputePlan(recompute=(("conv",),)), {"bn": "scale"}),
    ],
    ids=["two_devices", "one_device", "segment_before", "segment_behind", "one_segment", "no_segment"],
)
def test_both_layers_are_on_one_device_and_in_one_segment(plan: ComputePlan, expected: dict[str, str]) -> None:
    assert pairs(net_with(), plan) == expected


def test_no_plan_of_ours_separates_the_two() -> None:
    net = net_with()
    assert allowed_cuts(net) == [0, 1, 2, 4, 5]
    assert uncut_parts(net) == ((1,), (2, 3), (4,))


def test_a_pair_makes_one_blob_and_keeps_the_convolutions() -> None:
    turned = 'layer { name: "tanh" type: "TanH" bottom: "s" top: "t" }'
    turned_bytes = {row.layer: row.activation_bytes for row in layer_rows(net_with(behind=turned))}
    assert (turned_bytes["conv"] - 4 * 4 * 3 * 5 * 6, turned_bytes["bn"], turned_bytes["scale"]) == (VALUES, 0, 0)
    unfused_bytes = {
        row.layer: row.activation_bytes for row in layer_rows(net_with(scale=SCALE.replace("bias", "axis: 3 bias")))
    }
    assert (unfused_bytes["conv"] - 4 * 4 * 3 * 5 * 6, unfused_bytes["bn"], unfused_bytes["scale"]) == (
        VALUES,
        VALUES,
        0,
    )
