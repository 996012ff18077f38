"""Spark's properties for the assignment of GPUs to executors and tasks. Pure; ``spark_context`` applies the properties.

Spark: docs/configuration.md, "Custom Resource Scheduling"; docs/running-on-yarn.md and running-on-kubernetes.md,
"Resource Allocation"; docs/spark-standalone.md, "Resource Allocation and Configuration Overview".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from deepspark_ops.devices.host_gpus import DISCOVERY_SCRIPT
from deepspark_ops.devices.requested import RequestedDevices, check_enough
from deepspark_ops.errors import ConfigError

EXECUTOR_GPUS: Final = "spark.executor.resource.gpu.amount"
TASK_GPUS: Final = "spark.task.resource.gpu.amount"
SCRIPT: Final = "spark.executor.resource.gpu.discoveryScript"
VENDOR: Final = "spark.executor.resource.gpu.vendor"
YARN_FILES: Final = "spark.yarn.dist.files"
EXECUTOR_CORES: Final = "spark.executor.cores"
TASK_CPUS: Final = "spark.task.cpus"


def gpu_properties(
    master: str, settings: Mapping[str, str], requested: RequestedDevices, *, n_workers: int
) -> dict[str, str]:
    """Return the additional properties to assign GPUs to each task, which is a worker.

    Properties in ``settings`` are never changed. Optional GPUs are used if the settings grant GPUs to executors.
    Required GPUs are requested, with executors of a size that uses each GPU.

    Args:
        master: The job's Spark master; a local master assigns no resources.
        settings: Present settings of Spark: spark-defaults.conf and the arguments of spark-submit.
        requested: Devices that each worker requests.
        n_workers: Number of workers, one task each.

    Raises:
        ConfigError: The settings do not allow the requested GPUs.
    """
    if requested.kind == "cpu" or master.startswith("local"):
        return {}
    if not requested.is_required and EXECUTOR_GPUS not in settings:
        return {}
    per_executor = int(_number(settings, EXECUTOR_GPUS, requested.per_worker))
    per_task = _gpus_of_a_task(settings, requested)
    check_enough(requested, per_executor, f"Spark's settings grant an executor ({EXECUTOR_GPUS})")
    properties = {TASK_GPUS: f"{per_task:g}"}
    if requested.is_required:
        tasks = max(1, int(per_executor / per_task))
        properties |= {EXECUTOR_GPUS: str(per_executor)}
        properties |= _discovery(master, settings)
        properties |= _executors(master, settings, tasks, n_workers)
    return {name: value for name, value in properties.items() if name not in settings or name == YARN_FILES}


def _gpus_of_a_task(settings: Mapping[str, str], requested: RequestedDevices) -> float:
    """Return the number of GPUs of a task; a fraction stands for a GPU shared by several tasks."""
    if requested.is_shared and TASK_GPUS not in settings:
        msg = (
            "share_gpus=true: on a cluster Spark says how many tasks share a GPU, and its settings do not; put e.g."
            f' "{TASK_GPUS} 0.5" (two) into spark-defaults.conf, or leave share_gpus out'
        )
        raise ConfigError(msg)
    per_task = _number(settings, TASK_GPUS, requested.per_worker)
    if math.ceil(per_task) < requested.per_worker:
        msg = (
            f"gpus_per_worker={requested.per_worker}: a worker is one task, and Spark's settings give a task"
            f" {per_task:g} ({TASK_GPUS}); set that to {requested.per_worker}, or take it out of spark-defaults.conf"
        )
        raise ConfigError(msg)
    return per_task


def _discovery(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of an executor's script to list the GPUs; empty on a standalone cluster."""
    if SCRIPT in settings:
        return _vendor(master)
    is_shipped = master == "yarn" and settings.get("spark.submit.deployMode", "client") == "client"
    if is_shipped:
        # YARN copies the executable script into each container's folder, so hosts do not need this package.
        files = [*filter(None, [settings.get(YARN_FILES, "")]), DISCOVERY_SCRIPT.as_uri()]
        return {SCRIPT: f"./{DISCOVERY_SCRIPT.name}", YARN_FILES: ",".join(files)}
    return {SCRIPT: str(DISCOVERY_SCRIPT), **_vendor(master)}


def _vendor(master: str) -> dict[str, str]:
    # Kubernetes knows the resource as nvidia.com/gpu.
    return {VENDOR: "nvidia.com"} if master.startswith("k8s://") else {}


def _executors(master: str, settings: Mapping[str, str], tasks: int, n_workers: int) -> dict[str, str]:
    """Return the properties for enough executors for the workers, with cores for all tasks of an executor's GPUs.

    Otherwise a standalone cluster would start a single executor with all cores of a host, and leave the other GPUs
    idle.
    """
    per_task = int(_number(settings, TASK_CPUS, 1))
    cores = int(_number(settings, EXECUTOR_CORES, tasks * per_task))
    n_executors = math.ceil(n_workers / max(1, min(tasks, cores // per_task)))
    if master.startswith("spark://"):
        return {EXECUTOR_CORES: str(cores), "spark.cores.max": str(n_executors * cores)}
    if settings.get("spark.dynamicAllocation.enabled", "false").strip().lower() == "true":
        return {EXECUTOR_CORES: str(cores)}
    return {EXECUTOR_CORES: str(cores), "spark.executor.instances": str(n_executors)}


def _number(settings: Mapping[str, str], name: str, default: float) -> float:
    """Return a positive number of Spark's settings.

    Raises:
        ConfigError: The setting is no positive number.
    """
    try:
        number = float(settings.get(name, default))
    except ValueError:
        number = 0.0
    if not number > 0:
        msg = f"Spark's settings say {name}={settings[name]}; allowed: a number above 0"
        raise ConfigError(msg)
    return number
