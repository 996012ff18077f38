"""The devices of a worker on this host: needs and supply."""

from __future__ import annotations

from typing import Any

import pytest

from caffe_import.devices.compute_plan import ComputePlan, Placement
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices import worker_rows as module
from deepspark_ops.devices.host_gpus import HostGpus
from deepspark_ops.devices.worker_rows import WorkerRow, worker_rows

GIB = 2**30
NET = build_net_spec(
    parse_net(
        """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 10 dim: 1000 } } }
layer { name: "wide" type: "InnerProduct" bottom: "data" top: "wide" inner_product_param { num_output: 4000 } }
layer { name: "thin" type: "InnerProduct" bottom: "wide" top: "thin" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "Reduction" bottom: "thin" top: "loss" loss_weight: 1 }
"""
    ),
    phase="TRAIN",
)
WEIGHTS = 4 * 4_000_000
PLACED = ComputePlan(placement=Placement(2, {"data": 0, "wide": 0, "thin": 1, "loss": 1}))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A host to be changed: GPUs, their memory and the host's memory."""
    has: dict[str, Any] = {"gpus": (), "gpu_bytes": None, "bytes": 64 * GIB}
    monkeypatch.setattr(module, "host_gpus", lambda _: HostGpus(has["gpus"], "" if has["gpus"] else "no nvidia-smi"))
    monkeypatch.setattr(module, "gpu_memory_bytes", lambda _: has["gpu_bytes"])
    monkeypatch.setattr(module, "host_memory_bytes", lambda: has["bytes"])
    return has


def rows(plan: ComputePlan, *, solver_mode: str = "GPU", **options: Any) -> tuple[WorkerRow, ...]:
    solver = solver_spec(
        parse_solver(f'base_lr: 0.1 lr_policy: "fixed" max_iter: 1 momentum: 0.9 solver_mode: {solver_mode}')
    )
    config = CheckConfig(solver="s", **options)
    return worker_rows(config, plan, NET, solver, {}, process_bytes=3 * GIB, driver_bytes=4 * GIB)


def test_a_cpu_is_shared_by_the_workers_beside_the_driver(host: dict[str, Any]) -> None:
    (row,) = rows(ComputePlan(), n_workers=3)
    assert row == WorkerRow(0, "CPU", 3 * GIB, 20 * GIB, "its share of this machine")


def test_a_gpu_needs_the_step_and_not_the_process(host: dict[str, Any]) -> None:
    host.update(gpus=("0", "1"), gpu_bytes=8 * GIB)
    (row,) = rows(ComputePlan(), n_workers=2)
    assert (row.computes_on, row.there_bytes, row.room) == ("GPU", 8 * GIB, "the smallest GPU of this host")
    # Weights, gradients and history at least; nothing near what TensorFlow's process takes of the host.
    assert 3 * WEIGHTS < row.needed_bytes < 20 * WEIGHTS
    assert not row.is_too_large
    host["gpu_bytes"] = 2 * WEIGHTS
    assert rows(ComputePlan())[0].is_too_large


@pytest.mark.parametrize(("options", "mode"), [({"devices": "cpu"}, "GPU"), ({}, "CPU")])
def test_a_gpu_that_is_not_asked_for_is_not_counted(host: dict[str, Any], options: dict[str, Any], mode: str) -> None:
    host.update(gpus=("0",), gpu_bytes=8 * GIB)
    assert rows(ComputePlan(), solver_mode=mode, n_workers=1, **options)[0].computes_on == "CPU"


def test_a_gpu_that_must_be_is_not_known_here(host: dict[str, Any]) -> None:
    (row,) = rows(ComputePlan(), devices="gpu")
    assert (row.computes_on, row.there_bytes, row.room) == ("GPU", None, "not known here: no nvidia-smi")
    assert not row.is_too_large


def test_workers_that_share_a_gpu_have_a_part_of_it_each(host: dict[str, Any]) -> None:
    host.update(gpus=("0", "1"), gpu_bytes=12 * GIB)
    assert rows(ComputePlan(), n_workers=5, share_gpus=True)[0].there_bytes == 4 * GIB


def test_each_replica_holds_the_net_and_each_device_of_a_placement_its_part(host: dict[str, Any]) -> None:
    replicas = rows(ComputePlan(n_replicas=2), n_workers=1)
    assert [row.device for row in replicas] == [0, 1]
    assert replicas[0].needed_bytes == replicas[1].needed_bytes > 3 * WEIGHTS
    assert {row.computes_on for row in replicas} == {"logical device of the CPU"}
    wide, thin = rows(PLACED, n_workers=1)
    assert wide.needed_bytes > 3 * WEIGHTS
    assert thin.needed_bytes < WEIGHTS
