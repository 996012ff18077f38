"""Assignment of the host's GPUs and cores to workers in local mode, where Spark assigns no resources."""

from __future__ import annotations

from collections.abc import Mapping

from caffe_import.proto import caffe_pb2
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.host_cores import host_cores, share_of_cores
from deepspark_ops.devices.host_gpus import HostGpus, host_gpus
from deepspark_ops.devices.requested import RequestedDevices, check_enough, requested_devices, without_gpus
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.cluster_network import stays_in_process


def devices_of_run(config: TrainConfig, solver: SolverSpec, environment: Mapping[str, str]) -> RunDevices:
    """Return the driver's knowledge of the workers' devices before the start of Spark.

    Args:
        config: The options.
        solver: The solver, for its ``solver_mode`` and ``device_id``.
        environment: Environment of the driver, for the host's GPUs.

    Raises:
        ConfigError: In local mode, this host lacks the requested devices.
    """
    requested = _requested(config, solver)
    if not config.master.startswith("local"):
        return RunDevices(requested)
    host = host_gpus(environment) if requested.kind == "gpu" else HostGpus(())
    return RunDevices(requested, deal(requested, host, n_workers=config.n_workers, cores=host_cores()))


def _requested(config: TrainConfig, solver: SolverSpec) -> RequestedDevices:
    return requested_devices(
        config.devices,
        solver_mode_is_gpu=solver.message.solver_mode == caffe_pb2.SolverParameter.GPU,
        is_written=solver.message.HasField("solver_mode"),
        device_id=solver.message.device_id,
        per_worker=config.gpus_per_worker,
        is_shared=config.share_gpus,
        n_threads=config.threads_per_worker,
    )


def with_workers_of_host(
    config: TrainConfig, solver: SolverSpec, environment: Mapping[str, str]
) -> tuple[TrainConfig, str]:
    """Return the config with a number in place of a range, and a line about it; unchanged for a cluster.

    On a single host no worker comes late: all have a slot.
    """
    if not isinstance(config.n_workers, WorkerRange) or not stays_in_process(config.master):
        return config, ""
    n_workers = workers_of_host(config.n_workers, _requested(config, solver), environment, fewest=config.fewest_workers)
    note = f"n_workers={config.n_workers.text}: {n_workers} of a single host, by its cores or GPUs"
    return config.model_copy(update={"n_workers": n_workers}), note


def workers_of_host(
    n_workers: int, requested: RequestedDevices, environment: Mapping[str, str], *, fewest: int = 1
) -> int:
    """Return the number of workers on a single host: a range becomes the number of the host's GPUs or cores.

    Args:
        n_workers: A number, or a range.
        requested: Devices that each worker requests.
        environment: Environment of this process, for the GPUs of the host.
        fewest: The smallest number.
    """
    if not isinstance(n_workers, WorkerRange):
        return n_workers
    gpus = host_gpus(environment).addresses if requested.kind == "gpu" else ()
    n_threads = 1 if requested.n_threads == "auto" else requested.n_threads
    n_offered = len(gpus) // requested.per_worker if gpus else host_cores() // n_threads
    return min(int(n_workers), max(n_workers.fewest, fewest, n_offered))


def deal(requested: RequestedDevices, host: HostGpus, *, n_workers: int, cores: int) -> tuple[AssignedDevices, ...]:
    """Return the devices of each worker, by worker id.

    Each GPU belongs to a single worker. Shared GPUs are assigned round-robin: worker w gets the GPUs from w *
    ``per_worker`` on, modulo the number of GPUs.

    Args:
        requested: Devices that each worker requests.
        host: GPUs of this host.
        n_workers: Workers on this host.
        cores: Cores of all workers together.

    Raises:
        ConfigError: The host has too few GPUs, or no GPUs although the workers require GPUs.

    Example:
        >>> [worker.gpus for worker in deal(RequestedDevices("gpu"), HostGpus(("0", "1")), n_workers=2, cores=4)]
        [('0',), ('1',)]
    """
    n_threads = share_of_cores(requested.n_threads, cores, n_workers)
    if requested.kind == "cpu" or not host.addresses:
        return (without_gpus(requested, host.reason, n_threads=n_threads),) * n_workers
    _check(requested, host, n_workers)
    n_found, first = len(host.addresses), requested.first if n_workers == 1 else 0
    starts = (first + worker * requested.per_worker for worker in range(n_workers))
    return tuple(
        AssignedDevices(
            "gpu", tuple(host.addresses[(start + i) % n_found] for i in range(requested.per_worker)), n_threads
        )
        for start in starts
    )


def _check(requested: RequestedDevices, host: HostGpus, n_workers: int) -> None:
    n_found, n_needed = len(host.addresses), n_workers * requested.per_worker
    listed = f"{n_found} (GPU {', '.join(host.addresses)})"
    check_enough(requested, n_found, "this host has")
    if n_needed > n_found and not requested.is_shared:
        msg = (
            f"n_workers={n_workers}, gpus_per_worker={requested.per_worker}: they need {n_needed} GPUs, and this host "
            "has"
            f" {listed}; use at most n_workers={n_found // requested.per_worker}, or share_gpus (--share-gpus: several"
            " workers on one GPU, which is slower for each), or devices=cpu"
        )
        raise ConfigError(msg)
    if n_workers == 1 and not 0 <= requested.first < n_found:
        msg = (
            f"device_id: {requested.first} in the solver: this host has {listed}, counted from 0; allowed: 0 to"
            f" {n_found - 1}, e.g. by overrides 'device_id: 0'"
        )
        raise ConfigError(msg)
