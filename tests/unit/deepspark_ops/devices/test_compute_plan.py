"""From options to the plan of a step, with the nets and the placement file of examples/."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.errors import PlacementError
from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices.compute_plan import compute_plan, precision_note, with_replicas
from tests.paths import ROOT

FOLDER = ROOT / "examples" / "cifar10"
SOLVER = FOLDER / "cifar10_quick_solver.prototxt"
NET = build_net_spec(
    read_net(FOLDER / "cifar10_quick_train_test.prototxt"), phase="TRAIN", sample_shapes=lambda _: ((3, 32, 32), ())
)
SPEC = load_solver(SOLVER, "iter_size: 2").spec


def device_plan(**options: object) -> ComputePlan:
    return compute_plan(CheckConfig(solver=SOLVER, **options), NET, SPEC)


def test_nothing_asked_for_is_the_plain_plan() -> None:
    assert device_plan() == ComputePlan()
    assert with_replicas(SPEC, ComputePlan()) == SPEC


def test_precision_is_handed_on_and_said_with_its_layers() -> None:
    plan = device_plan(precision="bfloat16", gpus_per_worker=2)
    assert plan == ComputePlan(n_replicas=2, precision="bfloat16")
    assert precision_note(plan, NET) == (
        "precision=bfloat16: 5 of 13 layers compute in it: conv1, conv2, conv3, ip1, ip2"
    )
    assert precision_note(device_plan(), NET) is None


def test_a_precision_that_changes_nothing_says_so() -> None:
    net = build_net_spec(
        parse_net("""
        layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "scale" type: "Scale" bottom: "data" top: "scale" }
        layer { name: "loss" type: "Reduction" bottom: "scale" top: "loss" loss_weight: 1 }
        """),
        phase="TRAIN",
    )
    assert precision_note(ComputePlan(precision="float16"), net) == (
        "precision=float16: no layer of the training net computes in 16 bits, so it changes nothing"
    )


def test_several_devices_without_a_placement_are_replicas_whose_passes_add_up() -> None:
    plan = device_plan(gpus_per_worker=3)
    assert plan == ComputePlan(n_replicas=3)
    assert with_replicas(SPEC, plan).iter_size == 6


def test_the_placement_file_of_the_example_cuts_its_net_in_two() -> None:
    plan = device_plan(gpus_per_worker=2, placement=FOLDER / "two_devices.txt")
    assert plan.placement is not None
    assert (plan.n_replicas, plan.n_devices) == (1, 2)
    assert with_replicas(SPEC, plan) == SPEC
    parts = [[name for name, at in plan.placement.device_of.items() if at == device] for device in (0, 1)]
    assert parts[0] == ["cifar", "conv1", "pool1", "relu1", "conv2", "relu2", "pool2"]
    assert parts[1] == ["conv3", "relu3", "pool3", "ip1", "ip2", "loss"]


def test_auto_cuts_the_net_in_two_in_its_order() -> None:
    plan = device_plan(gpus_per_worker=2, placement="auto")
    assert plan.placement is not None
    devices = [plan.placement.device_of[layer.name] for layer in NET.layers]
    assert set(devices) == {0, 1}
    assert devices == sorted(devices)


def test_one_device_needs_no_placement_but_the_file_must_be_right(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("conv*: 0\n")
    assert device_plan(placement="auto") == device_plan(placement=tmp_path / "one.txt") == ComputePlan()
    with pytest.raises(PlacementError, match="there is no device 1: the only one is 0"):
        device_plan(placement=FOLDER / "two_devices.txt")
