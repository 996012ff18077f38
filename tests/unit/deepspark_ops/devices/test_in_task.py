from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.devices import in_task
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.in_task import TaskGrant, devices_in_task, show_only
from deepspark_ops.devices.requested import RequestedDevices
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ConfigError, DeepSparkError
from tests.fake_smi import smi_folder

NO_CARD = {"PATH": "/nowhere"}


@pytest.fixture(autouse=True)
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_task, "host_cores", lambda: 12)


def devices(
    requested: RequestedDevices,
    grant: TaskGrant,
    *,
    worker: int = 0,
    core_share: int = 1,
    env: dict[str, str] | None = None,
) -> AssignedDevices:
    environment = env or NO_CARD
    return devices_in_task(RunDevices(requested), worker, grant, core_share=lambda: core_share, environment=environment)


def test_what_the_driver_dealt_is_final() -> None:
    dealt = (AssignedDevices("gpu", ("0",), 2), AssignedDevices("gpu", ("1",), 2))
    run = RunDevices(RequestedDevices("gpu"), dealt)
    assert devices_in_task(run, 1, TaskGrant(("7",), 9), core_share=lambda: 5, environment=NO_CARD) == dealt[1]


def test_the_tasks_own_addresses_are_taken_whatever_the_host_has(tmp_path: Path) -> None:
    env = {"PATH": f"{smi_folder(tmp_path, '0')}:/usr/bin:/bin"}
    assert devices(RequestedDevices("gpu"), TaskGrant(("3",)), env=env) == AssignedDevices("gpu", ("3",), 1)
    two = RequestedDevices("gpu", is_required=True, per_worker=2)
    assert devices(two, TaskGrant(("3", "1", "2"))).gpus == ("3", "1")


def test_a_cpu_worker_takes_no_gpu_that_spark_assigns() -> None:
    assert devices(RequestedDevices("cpu"), TaskGrant(("3",))) == AssignedDevices("cpu", (), 1)


def test_without_an_assignment_workers_go_round_what_their_host_has(tmp_path: Path) -> None:
    folder = smi_folder(tmp_path, "0\n1\n2")
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    requested = RequestedDevices("gpu")
    assigned_devices = [devices(requested, TaskGrant(), worker=worker, env=env) for worker in range(4)]
    assert [assigned.gpus for assigned in assigned_devices] == [("0",), ("1",), ("2",), ("0",)]
    assert "Spark's settings assign no GPUs" in (assigned_devices[0].note or "")
    two = RequestedDevices("gpu", per_worker=2)
    assert devices(two, TaskGrant(), worker=1, env=env).gpus == ("2", "0")
    with pytest.raises(ConfigError, match=r"gpus_per_worker=4: the worker's host has 3 GPUs; allowed: 1 to 3"):
        devices(RequestedDevices("gpu", per_worker=4), TaskGrant(), env=env)


def test_without_any_gpu_auto_takes_the_cpu_and_gpu_refuses() -> None:
    assigned = devices(RequestedDevices("gpu"), TaskGrant(), core_share=3)
    assert (assigned.kind, assigned.n_threads) == ("cpu", 3)
    assert "training on the CPU: Spark assigned no GPU and this host has no nvidia-smi on PATH" in (assigned.note or "")
    with pytest.raises(ConfigError, match=r"devices=gpu: Spark assigned the worker's task no GPU; make GPUs available"):
        devices(RequestedDevices("gpu", is_required=True), TaskGrant())


def test_too_few_addresses_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gpus_per_worker=2: Spark assigned the worker's task 1 \(5\); set spark\."):
        devices(RequestedDevices("gpu", per_worker=2), TaskGrant(("5",)))


@pytest.mark.parametrize(
    ("n_threads", "n_cpus", "core_share", "expected"),
    [("auto", 1, 4, 4), ("auto", 3, 4, 3), ("auto", 1, 64, 12), ("auto", 16, 1, 12), (20, 3, 4, 20), ("auto", 1, 1, 1)],
)
def test_threads_are_the_tasks_cpus_else_its_share_and_never_more_than_the_host_has(
    n_threads: int, n_cpus: int, core_share: int, expected: int
) -> None:
    assigned = devices(RequestedDevices(n_threads=n_threads), TaskGrant(n_cpus=n_cpus), core_share=core_share)
    assert assigned.n_threads == expected


def test_a_process_sees_its_own_gpus_counted_as_nvidia_smi_counts() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    show_only(AssignedDevices("gpu", ("2", "0")), environment, {})
    assert environment == {"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_cpu_worker_sees_none() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    show_only(AssignedDevices(), environment, {})
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_process_that_has_tensorflow_already_may_only_go_on_with_the_same() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "2"}
    show_only(AssignedDevices("gpu", ("2",)), environment, {"tensorflow"})
    with pytest.raises(DeepSparkError) as error:
        show_only(AssignedDevices("gpu", ("1",)), environment, {"tensorflow"})
    assert str(error.value) == (
        "the worker is to see CUDA_VISIBLE_DEVICES=1, but its process has imported TensorFlow already with 2: Spark"
        " used an earlier worker's process again; set spark.python.worker.reuse to false"
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == "2"
