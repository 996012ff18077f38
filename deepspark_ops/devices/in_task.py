"""Devices of a worker inside a Spark task: chooses the devices and hides others, before TensorFlow is imported.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.devices.host_gpus import NO_GPU, ORDER, VISIBLE, host_gpus
from deepspark_ops.devices.requested import RequestedDevices, check_enough, without_gpus
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ConfigError, DeepSparkError

ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment of a worker, each 1: TensorFlow has its own pool, and a second pool would fight for the same cores."""
_NOT_ASSIGNED = (
    "Spark's settings assign no GPUs, so that each worker takes what it finds on its host: two may take the same one;"
    " devices=gpu, or spark.executor.resource.gpu.amount in spark-defaults.conf, lets Spark assign them"
)


@dataclass(frozen=True)
class TaskGrant:
    """Resources assigned to a task by Spark.

    Attributes:
        gpus: Addresses of the GPUs; empty in local mode, and if Spark assigns no resources.
        n_cpus: ``spark.task.cpus``.
    """

    gpus: tuple[str, ...] = ()
    n_cpus: int = 1


def devices_in_task(
    devices: RunDevices,
    worker: int,
    grant: TaskGrant,
    *,
    core_share: Callable[[], int],
    environment: Mapping[str, str],
) -> AssignedDevices:
    """Return the devices of a worker: assigned by the driver, else by Spark, else the devices of the host.

    Args:
        devices: Devices of the run, from the driver.
        worker: Id of the worker.
        grant: Resources of the task, for this try.
        core_share: Returns the cores of the task's executor over its workers, 1 or more; may wait for their start.
        environment: Environment of the task.

    Raises:
        ConfigError: The worker requires GPUs, and the task or host has too few.
    """
    if devices.dealt:
        return devices.dealt[worker]
    requested = devices.requested
    n_threads = _threads(requested, grant, core_share)
    if requested.kind == "cpu":
        return without_gpus(requested, "", n_threads=n_threads)
    if grant.gpus:
        if requested.per_worker > len(grant.gpus):
            msg = (
                f"gpus_per_worker={requested.per_worker}: Spark assigned the worker's task {len(grant.gpus)}"
                f" ({', '.join(grant.gpus)}); set spark.task.resource.gpu.amount to {requested.per_worker}"
            )
            raise ConfigError(msg)
        return AssignedDevices("gpu", grant.gpus[: requested.per_worker], n_threads)
    if requested.is_required:
        return without_gpus(requested, "Spark assigned the worker's task no GPU", n_threads=n_threads)
    host = host_gpus(environment)
    if not host.addresses:
        return without_gpus(requested, f"Spark assigned no GPU and {host.reason}", n_threads=n_threads)
    n_found = len(host.addresses)
    check_enough(requested, n_found, "the worker's host has")
    chosen = tuple(host.addresses[(worker * requested.per_worker + i) % n_found] for i in range(requested.per_worker))
    return AssignedDevices("gpu", chosen, n_threads, _NOT_ASSIGNED)


def _threads(requested: RequestedDevices, grant: TaskGrant, core_share: Callable[[], int]) -> int:
    if requested.n_threads != "auto":
        return requested.n_threads
    share = grant.n_cpus if grant.n_cpus > 1 else core_share()
    return max(1, min(share, host_cores()))


def show_only(assigned: AssignedDevices, environment: MutableMapping[str, str], modules: Container[str]) -> None:
    """Hide all GPUs except the assigned ones. Call before TensorFlow is imported, because TensorFlow looks once.

    Args:
        assigned: The worker's devices.
        environment: Environment of this process; changed.
        modules: Imported modules: ``sys.modules``.

    Raises:
        DeepSparkError: TensorFlow is already imported and sees other GPUs; a new process would help.
    """
    visible = ",".join(assigned.gpus) if assigned.kind == "gpu" else NO_GPU
    present = environment.get(VISIBLE)
    if "tensorflow" in modules and present != visible:
        msg = (
            f"the worker is to see {VISIBLE}={visible}, but its process has imported TensorFlow already with"
            f" {'nothing set' if present is None else present}: Spark used an earlier worker's process again; set"
            " spark.python.worker.reuse to false"
        )
        raise DeepSparkError(msg)
    environment[VISIBLE] = visible
    environment[ORDER] = "PCI_BUS_ID"
