"""Spark's properties with which a cluster assigns GPUs to executors and tasks. Pure; ``spark_context`` applies them.

Spark: docs/configuration.md, "Custom Resource Scheduling"; docs/running-on-yarn.md and running-on-kubernetes.md,
"Resource Allocation"; docs/spark-standalone.md, "Resource Allocation and Configuration Overview".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from deepspark_ops.devices.host_gpus import DISCOVERY_SCRIPT
from deepspark_ops.devices.wanted import WantedDevices, check_enough
from deepspark_ops.errors import ConfigError

EXECUTOR_GPUS: Final = "spark.executor.resource.gpu.amount"
TASK_GPUS: Final = "spark.task.resource.gpu.amount"
SCRIPT: Final = "spark.executor.resource.gpu.discoveryScript"
VENDOR: Final = "spark.executor.resource.gpu.vendor"
YARN_FILES: Final = "spark.yarn.dist.files"
EXECUTOR_CORES: Final = "spark.executor.cores"
TASK_CPUS: Final = "spark.task.cpus"


def gpu_properties(
    master: str, settings: Mapping[str, str], wanted: WantedDevices, *, n_workers: int
) -> dict[str, str]:
    """Return the properties to add so that every task, which is one worker, is assigned its GPUs.

    What ``settings`` say already is never changed. Where GPUs are not required, they are used if the settings grant
    executors some; where they are, they are asked for, and executors of a size that makes use of each.

    Args:
        master: The job's Spark master; a local one gives no resources.
        settings: Spark's settings as they are: spark-defaults.conf and what spark-submit was given.
        wanted: What each worker asks for.
        n_workers: Workers, each a task of its own.

    Raises:
        ConfigError: The settings cannot give a worker what it asks for.
    """
    if wanted.kind == "cpu" or master.startswith("local"):
        return {}
    if not wanted.is_required and EXECUTOR_GPUS not in settings:
        return {}
    per_executor = int(_number(settings, EXECUTOR_GPUS, wanted.per_worker))
    per_task = _gpus_of_a_task(settings, wanted)
    check_enough(wanted, per_executor, f"Spark's settings grant an executor ({EXECUTOR_GPUS})")
    asked = {TASK_GPUS: f"{per_task:g}"}
    if wanted.is_required:
        tasks = max(1, int(per_executor / per_task))
        asked |= {EXECUTOR_GPUS: str(per_executor)}
        asked |= _discovery(master, settings)
        asked |= _executors(master, settings, tasks, n_workers)
    return {name: value for name, value in asked.items() if name not in settings or name == YARN_FILES}


def _gpus_of_a_task(settings: Mapping[str, str], wanted: WantedDevices) -> float:
    """Return the GPUs that a task asks for; a part of one stands for a GPU that several tasks share."""
    if wanted.is_shared and TASK_GPUS not in settings:
        msg = (
            "share_gpus=true: on a cluster Spark says how many tasks share a GPU, and its settings do not; put e.g."
            f' "{TASK_GPUS} 0.5" (two) into spark-defaults.conf, or leave share_gpus out'
        )
        raise ConfigError(msg)
    per_task = _number(settings, TASK_GPUS, wanted.per_worker)
    if math.ceil(per_task) < wanted.per_worker:
        msg = (
            f"gpus_per_worker={wanted.per_worker}: a worker is one task, and Spark's settings give a task"
            f" {per_task:g} ({TASK_GPUS}); set that to {wanted.per_worker}, or take it out of spark-defaults.conf"
        )
        raise ConfigError(msg)
    return per_task


def _discovery(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return how an executor learns its GPUs' addresses: by a script, except on a standalone cluster's worker."""
    if SCRIPT in settings:
        return _vendor(master)
    is_shipped = master == "yarn" and settings.get("spark.submit.deployMode", "client") == "client"
    if is_shipped:
        # YARN copies the file into each container's folder, executable, so that no host needs this package for it.
        files = [*filter(None, [settings.get(YARN_FILES, "")]), DISCOVERY_SCRIPT.as_uri()]
        return {SCRIPT: f"./{DISCOVERY_SCRIPT.name}", YARN_FILES: ",".join(files)}
    return {SCRIPT: str(DISCOVERY_SCRIPT), **_vendor(master)}


def _vendor(master: str) -> dict[str, str]:
    # Kubernetes knows the resource as nvidia.com/gpu.
    return {VENDOR: "nvidia.com"} if master.startswith("k8s://") else {}


def _executors(master: str, settings: Mapping[str, str], tasks: int, n_workers: int) -> dict[str, str]:
    """Return executors with cores for as many tasks as their GPUs serve, and as many executors as the workers need.

    A standalone cluster would else start one executor with all cores of a host, and leave its other GPUs unused.
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
        ConfigError: It is none.
    """
    try:
        found = float(settings.get(name, default))
    except ValueError:
        found = 0.0
    if not found > 0:
        msg = f"Spark's settings say {name}={settings[name]}; allowed: a number above 0"
        raise ConfigError(msg)
    return found
