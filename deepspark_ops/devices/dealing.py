"""Local mode, to which Spark gives no resources: the driver deals the host's GPUs and cores out to the workers."""

from __future__ import annotations

from collections.abc import Mapping

from caffe_import.proto import caffe_pb2
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.host_cores import host_cores, share_of_cores
from deepspark_ops.devices.host_gpus import HostGpus, host_gpus
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.devices.wanted import WantedDevices, check_enough, wanted_devices, without_gpus
from deepspark_ops.errors import ConfigError


def devices_of_run(config: TrainConfig, solver: SolverSpec, environment: Mapping[str, str]) -> RunDevices:
    """Return what the driver knows of the workers' devices before anything is started.

    Args:
        config: The options.
        solver: Its ``solver_mode`` and ``device_id`` count.
        environment: The driver's, for the host's GPUs.

    Raises:
        ConfigError: In local mode, this host cannot give the workers what they ask for.
    """
    wanted = wanted_devices(
        config.devices,
        solver_mode_is_gpu=solver.message.solver_mode == caffe_pb2.SolverParameter.GPU,
        is_written=solver.message.HasField("solver_mode"),
        device_id=solver.message.device_id,
        per_worker=config.gpus_per_worker,
        is_shared=config.share_gpus,
        n_threads=config.threads_per_worker,
    )
    if not config.master.startswith("local"):
        return RunDevices(wanted)
    host = host_gpus(environment) if wanted.kind == "gpu" else HostGpus(())
    return RunDevices(wanted, deal(wanted, host, n_workers=config.n_workers, cores=host_cores()))


def deal(wanted: WantedDevices, host: HostGpus, *, n_workers: int, cores: int) -> tuple[AssignedDevices, ...]:
    """Return what each worker gets, by worker id.

    Each GPU goes to one worker; where they are shared, they go round: worker w gets the GPUs from
    w * ``per_worker`` on, counted modulo their number.

    Args:
        wanted: What each worker asks for.
        host: The GPUs to deal out.
        n_workers: Workers on this host.
        cores: Cores that they may use together.

    Raises:
        ConfigError: There are too few GPUs, or none and the workers must not do without.

    Example:
        >>> [worker.gpus for worker in deal(WantedDevices("gpu"), HostGpus(("0", "1")), n_workers=2, cores=4)]
        [('0',), ('1',)]
    """
    n_threads = share_of_cores(wanted.n_threads, cores, n_workers)
    if wanted.kind == "cpu" or not host.addresses:
        return (without_gpus(wanted, host.reason, n_threads=n_threads),) * n_workers
    _check(wanted, host, n_workers)
    n_found, first = len(host.addresses), wanted.first if n_workers == 1 else 0
    starts = (first + worker * wanted.per_worker for worker in range(n_workers))
    return tuple(
        AssignedDevices(
            "gpu", tuple(host.addresses[(start + i) % n_found] for i in range(wanted.per_worker)), n_threads
        )
        for start in starts
    )


def _check(wanted: WantedDevices, host: HostGpus, n_workers: int) -> None:
    n_found, n_needed = len(host.addresses), n_workers * wanted.per_worker
    listed = f"{n_found} (GPU {', '.join(host.addresses)})"
    check_enough(wanted, n_found, "this host has")
    if n_needed > n_found and not wanted.is_shared:
        msg = (
            f"n_workers={n_workers}, gpus_per_worker={wanted.per_worker}: they need {n_needed} GPUs, and this host has"
            f" {listed}; use at most n_workers={n_found // wanted.per_worker}, or share_gpus (--share-gpus: several"
            " workers on one GPU, which is slower for each), or devices=cpu"
        )
        raise ConfigError(msg)
    if n_workers == 1 and not 0 <= wanted.first < n_found:
        msg = (
            f"device_id: {wanted.first} in the solver: this host has {listed}, counted from 0; allowed: 0 to"
            f" {n_found - 1}, e.g. by overrides 'device_id: 0'"
        )
        raise ConfigError(msg)
