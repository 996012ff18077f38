"""In a worker's Spark task, before TensorFlow is imported: which devices it gets, and that it sees no others.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, MutableMapping
from dataclasses import dataclass

from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.devices.host_gpus import NO_GPU, ORDER, VISIBLE, host_gpus
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.devices.wanted import WantedDevices, check_enough, without_gpus
from deepspark_ops.errors import ConfigError, DeepSparkError

_NOT_ASSIGNED = (
    "Spark's settings assign no GPUs, so that each worker takes what it finds on its host: two may take the same one;"
    " devices=gpu, or spark.executor.resource.gpu.amount in spark-defaults.conf, lets Spark assign them"
)


@dataclass(frozen=True)
class TaskGrant:
    """What Spark has assigned to a task.

    Attributes:
        gpus: Addresses of its GPUs; none in local mode and where Spark assigns no resources.
        n_cpus: ``spark.task.cpus``.
    """

    gpus: tuple[str, ...] = ()
    n_cpus: int = 1


def devices_in_task(
    devices: RunDevices, worker: int, grant: TaskGrant, *, core_share: int, environment: Mapping[str, str]
) -> AssignedDevices:
    """Return what a worker computes on: what the driver dealt, else what Spark assigned, else what is on its host.

    Args:
        devices: What the driver knows.
        worker: Its id.
        grant: What the task was assigned, this try's.
        core_share: Cores of all executors over the number of workers, 1 or more.
        environment: The task's.

    Raises:
        ConfigError: It must not do without GPUs and there are too few.
    """
    if devices.dealt:
        return devices.dealt[worker]
    wanted = devices.wanted
    n_threads = _threads(wanted, grant, core_share)
    if wanted.kind == "cpu":
        return without_gpus(wanted, "", n_threads=n_threads)
    if grant.gpus:
        if wanted.per_worker > len(grant.gpus):
            msg = (
                f"gpus_per_worker={wanted.per_worker}: Spark assigned the worker's task {len(grant.gpus)}"
                f" ({', '.join(grant.gpus)}); set spark.task.resource.gpu.amount to {wanted.per_worker}"
            )
            raise ConfigError(msg)
        return AssignedDevices("gpu", grant.gpus[: wanted.per_worker], n_threads)
    if wanted.is_required:
        return without_gpus(wanted, "Spark assigned the worker's task no GPU", n_threads=n_threads)
    host = host_gpus(environment)
    if not host.addresses:
        return without_gpus(wanted, f"Spark assigned no GPU and {host.reason}", n_threads=n_threads)
    n_found = len(host.addresses)
    check_enough(wanted, n_found, "the worker's host has")
    chosen = tuple(host.addresses[(worker * wanted.per_worker + i) % n_found] for i in range(wanted.per_worker))
    return AssignedDevices("gpu", chosen, n_threads, _NOT_ASSIGNED)


def _threads(wanted: WantedDevices, grant: TaskGrant, core_share: int) -> int:
    if wanted.n_threads != "auto":
        return wanted.n_threads
    share = grant.n_cpus if grant.n_cpus > 1 else core_share
    return max(1, min(share, host_cores()))


def show_only(assigned: AssignedDevices, environment: MutableMapping[str, str], modules: Container[str]) -> None:
    """Let this process see the assigned GPUs and no others. Call it before TensorFlow is imported, which looks once.

    Args:
        assigned: The worker's devices.
        environment: Of this process; changed.
        modules: What is imported: ``sys.modules``.

    Raises:
        DeepSparkError: TensorFlow is imported already and sees others; a new process would help.
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
