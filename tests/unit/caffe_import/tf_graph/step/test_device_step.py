"""Steps over two devices give the plain step's numbers; sent and staying values; in a separate process."""

from __future__ import annotations

from typing import Any

import pytest

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import compile_training
from tests.processes import answer_of_module

pytestmark = pytest.mark.tf

_ROUNDING = 4e-7
"""Of the largest value: sums of a few float32 numbers in another order."""
_SMALL = 16
"""Bytes of the largest scalar or label batch here."""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return answer_of_module("tests.unit.caffe_import.tf_graph.step.steps_on_devices")


@pytest.fixture(scope="module")
def each_with_each() -> dict[str, Any]:
    return answer_of_module("tests.unit.caffe_import.tf_graph.step.steps_on_devices", "all")


@pytest.mark.parametrize("case", ["clipped", "debug", "batch norm", "recomputed"])
def test_numbers_are_those_of_one_device(results: dict[str, Any], case: str) -> None:
    assert_as_on_one_device(results["compared"][case])


@pytest.mark.long
@pytest.mark.parametrize(
    "case", ["one pass", "clipped", "debug", "Adam", "batch norm", "lstm", "recomputed", "recomputed float16"]
)
def test_numbers_of_every_plan_are_those_of_one_device(each_with_each: dict[str, Any], case: str) -> None:
    assert_as_on_one_device(each_with_each["compared"][case])


def assert_as_on_one_device(compared: dict[str, dict[str, float]]) -> None:
    for plan, offs in compared.items():
        assert max(offs.values()) <= _ROUNDING, (plan, offs)
        # One forward pass after the other adds up nothing in another order.
        assert offs["losses"] == 0 or plan != "placed"


@pytest.mark.long
def test_replicas_are_compared_where_they_share_the_passes(each_with_each: dict[str, Any]) -> None:
    assert [name for name, plans in each_with_each["compared"].items() if "replicas" in plans] == [
        "clipped",
        "debug",
        "Adam",
        "batch norm",
        "recomputed",
        "recomputed float16",
    ]


def test_each_replica_has_statistics_of_its_own(results: dict[str, Any]) -> None:
    assert set(results["own"].values()) == {0.0}
    assert {name.rpartition(" of ")[0] for name in results["own"]} == {"bn[0]", "bn[1]", "bn[2]"}


@pytest.mark.long
def test_each_replica_has_layer_state_of_its_own(each_with_each: dict[str, Any]) -> None:
    assert set(each_with_each["own"].values()) == {0.0}
    assert {name.rpartition(" of ")[0] for name in each_with_each["own"]} == {"lstm/h", "lstm/c"}


@pytest.mark.parametrize("plan", ["pipeline", "replicas"])
def test_between_steps_parameters_and_history_stay_on_their_devices(results: dict[str, Any], plan: str) -> None:
    ran = results[plan]
    assert ran["stays"]
    assert ran["n_traces"] == 1
    n_passes = 3 * (3 if plan == "pipeline" else 4)
    images, labels = ran["feeds"]
    assert ran["moved"].count(images) == n_passes
    assert ran["moved"].count(labels) == n_passes
    assert all(n_bytes in (images, labels) or n_bytes < _SMALL for n_bytes in ran["moved"])


def test_of_a_pipeline_activations_and_their_gradients_cross_once_a_pass(results: dict[str, Any]) -> None:
    sent = results["pipeline"]["sent"]
    assert sum("ip1/BiasAdd" in name for name in sent) == 3  # what the second stage reads
    assert sum("Relu_grad" in name for name in sent) == 3
    # Of three passes over two stages the third waits until the first has left its gradients.
    assert sum("group_deps" in name for name in sent) == 2
    # The rest are scalars: rate, three seeds, three losses, the accuracy.
    assert sum("strided_slice" in name or "stack" in name for name in sent) == 4
    assert sum("loss" in name or "mul" in name or "accuracy" in name for name in sent) <= 4 + 1
    assert len(sent) <= 17


def test_replicas_are_sent_the_parameters_once_and_send_one_sum_of_gradients(results: dict[str, Any]) -> None:
    sent = results["replicas"]["sent"]
    n_blobs = 6
    assert sum("flat" in name for name in sent) == n_blobs
    assert sum("add_" in name for name in sent) == n_blobs


def test_loops_of_two_replicas_stay_apart(results: dict[str, Any]) -> None:
    sent = results["loops"]["sent"]
    assert not [name for name in sent if "/body" in name or "loop_body" in name]
    assert len(sent) <= 2 * 5 + 1  # five blobs to the device and their gradients back, the loss


NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
"""


def test_a_plan_needs_the_names_of_its_devices_and_passes_for_all_replicas() -> None:
    net = build_net_spec(parse_net(NET), phase="TRAIN")
    solver = solver_spec(parse_solver('base_lr: 1 lr_policy: "fixed" max_iter: 9 iter_size: 2'))
    with pytest.raises(ValueError, match="the plan has 2 devices; names of 1 are given"):
        compile_training(net, solver, n_threads=1, plan=ComputePlan(n_replicas=2), devices=("/device:CPU:0",))
    with pytest.raises(ValueError, match="iter_size=2 counts the passes of all replicas: it must be a multiple of 3"):
        compile_training(net, solver, n_threads=1, plan=ComputePlan(n_replicas=3), devices=("a", "b", "c"))
