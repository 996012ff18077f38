from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices import dealing
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.dealing import deal, devices_of_run, with_workers_of_host
from deepspark_ops.devices.host_gpus import HostGpus
from deepspark_ops.devices.requested import RequestedDevices
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ConfigError
from tests.fake_smi import smi_folder

FOUR = HostGpus(("0", "1", "2", "3"))
NONE = HostGpus((), "this host has no card")


def solver(text: str = "") -> SolverSpec:
    return solver_spec(parse_solver(f'base_lr: 1 lr_policy: "fixed" max_iter: 9 {text}'))


def training_config(**options: Any) -> TrainConfig:
    return parse_config(TrainConfig, {"solver": "s.prototxt", "run_dir": "run", **options})


def dealt(requested: RequestedDevices, host: HostGpus, n_workers: int) -> list[tuple[str, ...]]:
    return [assigned.gpus for assigned in deal(requested, host, n_workers=n_workers, cores=8)]


@pytest.mark.parametrize(
    ("requested", "n_workers", "expected"),
    [
        (RequestedDevices("gpu"), 1, [("0",)]),
        (RequestedDevices("gpu"), 4, [("0",), ("1",), ("2",), ("3",)]),
        (RequestedDevices("gpu", per_worker=2), 2, [("0", "1"), ("2", "3")]),
        (RequestedDevices("gpu", per_worker=4), 1, [("0", "1", "2", "3")]),
        # The solver's device_id counts where one worker runs.
        (RequestedDevices("gpu", first=2), 1, [("2",)]),
        (RequestedDevices("gpu", first=3, per_worker=2), 1, [("3", "0")]),
        (RequestedDevices("gpu", first=2), 2, [("0",), ("1",)]),
        # Shared GPUs go round.
        (RequestedDevices("gpu", is_shared=True), 6, [("0",), ("1",), ("2",), ("3",), ("0",), ("1",)]),
        (RequestedDevices("gpu", is_shared=True, per_worker=3), 2, [("0", "1", "2"), ("3", "0", "1")]),
        (RequestedDevices("cpu", per_worker=9), 3, [(), (), ()]),
    ],
)
def test_each_gpu_goes_to_one_worker_unless_shared(
    requested: RequestedDevices, n_workers: int, expected: list[tuple[str, ...]]
) -> None:
    assert dealt(requested, FOUR, n_workers) == expected


def test_cores_are_divided_by_the_workers() -> None:
    assert [assigned.n_threads for assigned in deal(RequestedDevices(), NONE, n_workers=3, cores=8)] == [2, 2, 2]
    assert deal(RequestedDevices(n_threads=5), NONE, n_workers=3, cores=8)[0].n_threads == 5


@pytest.mark.parametrize(
    ("requested", "host", "n_workers", "message"),
    [
        (
            RequestedDevices("gpu", is_required=True),
            NONE,
            1,
            "devices=gpu: this host has no card; make GPUs available to the workers (docs/guides/devices.md), or use"
            " devices=auto or devices=cpu",
        ),
        (
            RequestedDevices("gpu"),
            FOUR,
            5,
            "n_workers=5, gpus_per_worker=1: they need 5 GPUs, and this host has 4 (GPU 0, 1, 2, 3); use at most"
            " n_workers=4, or share_gpus (--share-gpus: several workers on one GPU, which is slower for each), or"
            " devices=cpu",
        ),
        (
            RequestedDevices("gpu", per_worker=5, is_shared=True),
            FOUR,
            1,
            "gpus_per_worker=5: this host has 4 GPUs; allowed: 1 to 4, or devices=cpu, where the devices of a worker"
            " are logical ones of its CPU",
        ),
        (
            RequestedDevices("gpu", first=4),
            FOUR,
            1,
            "device_id: 4 in the solver: this host has 4 (GPU 0, 1, 2, 3), counted from 0; allowed: 0 to 3, e.g. by"
            " overrides 'device_id: 0'",
        ),
    ],
)
def test_too_few_gpus_are_one_message(
    requested: RequestedDevices, host: HostGpus, n_workers: int, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        deal(requested, host, n_workers=n_workers, cores=8)
    assert str(error.value) == message


def test_workers_that_may_do_without_compute_on_the_cpu_with_one_reason() -> None:
    (first, second) = deal(RequestedDevices("gpu", per_worker=2), NONE, n_workers=2, cores=2)
    (written,) = deal(RequestedDevices("gpu", is_written=True), NONE, n_workers=1, cores=2)
    assert first == second
    assert (first.kind, first.gpus, first.n_threads) == ("cpu", (), 1)
    assert first.note == "training on the CPU: this host has no card"
    assert written.note == (
        "the solver says solver_mode: GPU, but this host has no card: training on the CPU, as with solver_mode: CPU"
    )


@pytest.mark.parametrize(
    ("devices", "text", "kind"),
    [
        ("auto", "", "gpu"),
        ("auto", "solver_mode: GPU", "gpu"),
        ("auto", "solver_mode: CPU", "cpu"),
        ("cpu", "solver_mode: GPU", "cpu"),
        ("gpu", "solver_mode: CPU", "gpu"),
    ],
)
def test_auto_reads_the_solvers_mode_as_caffe_does(devices: str, text: str, kind: str, tmp_path: Path) -> None:
    env = {"PATH": f"{smi_folder(tmp_path, '0')}:/usr/bin:/bin"}
    run_devices = devices_of_run(training_config(devices=devices, n_workers=1), solver(text), env)
    assert [assigned.kind for assigned in run_devices.dealt] == [kind]
    assert RunDevices.from_plain(run_devices.to_plain()) == run_devices


def test_options_and_device_id_reach_the_dealing() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    options = training_config(gpus_per_worker=2, n_workers=1, threads_per_worker=3)
    run_devices = devices_of_run(options, solver("device_id: 1"), env)
    assert run_devices.dealt == (AssignedDevices("gpu", ("5", "6"), 3),)
    assert run_devices.lines() == ["GPU 5, GPU 6, 3 threads"]
    shared = devices_of_run(training_config(n_workers=5, share_gpus=True, threads_per_worker=1), solver(), env)
    assert [assigned.gpus for assigned in shared.dealt] == [("4",), ("5",), ("6",), ("7",), ("4",)]


@pytest.mark.parametrize(
    ("options", "n_cores", "n_workers"),
    [
        ({"n_workers": "auto"}, 6, 6),
        ({"n_workers": "auto", "threads_per_worker": 2}, 6, 3),
        ({"n_workers": "auto"}, 100, 64),
        ({"n_workers": "auto", "min_workers": 3}, 1, 3),
        ({"n_workers": "4..16"}, 2, 4),
        ({"n_workers": "4..16"}, 12, 12),
        ({"n_workers": "4..16"}, 40, 16),
        ({"n_workers": "1..8", "devices": "gpu"}, 8, 4),
        ({"n_workers": "1..8", "devices": "gpu", "gpus_per_worker": 2}, 8, 2),
    ],
)
def test_a_range_on_a_single_host_takes_the_hosts_cores_or_gpus(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], n_cores: int, n_workers: int
) -> None:
    monkeypatch.setattr(dealing, "host_cores", lambda: n_cores)
    env = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    counted, note = with_workers_of_host(training_config(**{"devices": "cpu", **options}), solver(), env)
    assert (counted.n_workers, type(counted.n_workers)) == (n_workers, int)
    assert note.startswith(f"n_workers={options['n_workers']}: {n_workers} of a single host")


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "local-cluster[2,1,1024]"])
def test_a_range_stays_on_a_cluster_and_a_number_everywhere(master: str) -> None:
    for options in ({"n_workers": "4..16", "master": master}, {"n_workers": 4}):
        config = training_config(**options)
        assert with_workers_of_host(config, solver(), {}) == (config, "")


def test_on_a_cluster_nothing_is_dealt_and_no_host_is_asked() -> None:
    run_devices = devices_of_run(
        training_config(devices="gpu", master="spark://a:7077"), solver(), {"PATH": "/nowhere"}
    )
    assert run_devices.dealt == ()
    assert run_devices.requested == RequestedDevices("gpu", is_required=True)


def test_shared_gpus_without_a_gpu_are_one_message() -> None:
    with pytest.raises(ConfigError) as error:
        training_config(devices="cpu", share_gpus=True)
    assert "share_gpus=true and devices=cpu: there is no GPU to share" in str(error.value)
    assert training_config(devices="cpu", gpus_per_worker=2).gpus_per_worker == 2
