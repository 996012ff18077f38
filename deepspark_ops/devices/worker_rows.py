"""Devices of a worker on this host: needed memory and available memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.step_memory import step_memory, step_shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices.device_rows import device_rows
from deepspark_ops.devices.host_gpus import host_gpus
from deepspark_ops.devices.memory_there import gpu_memory_bytes, host_memory_bytes
from deepspark_ops.devices.requested import requested_devices


@dataclass(frozen=True)
class WorkerRow:
    """A device of a worker; all workers have the same devices.

    Attributes:
        device: Number of the device in the worker.
        computes_on: Kind of device, in words.
        needed_bytes: Forecast of the worker's memory on the device.
        there_bytes: Memory of the device for the worker; None if unknown.
        room: Meaning of ``there_bytes``, or the reason of the missing value.
    """

    device: int
    computes_on: str
    needed_bytes: int
    there_bytes: int | None
    room: str

    @property
    def is_too_large(self) -> bool:
        """Return whether the worker needs more memory than the device has."""
        return self.there_bytes is not None and self.needed_bytes > self.there_bytes


def worker_rows(
    config: CheckConfig,
    plan: ComputePlan,
    net: NetSpec,
    solver: SolverSpec,
    environment: Mapping[str, str],
    *,
    process_bytes: int,
    driver_bytes: int,
) -> tuple[WorkerRow, ...]:
    """Return the devices of a worker as on this host; devices of a cluster are unknown.

    Args:
        config: Config with the options about devices and ``n_workers``.
        plan: Plan of the training step.
        net: The TRAIN net.
        solver: The solver as in its file: iter_size counts the passes of a single replica.
        environment: Environment of this process, for the GPUs of the host.
        process_bytes: Forecast of a worker's process that computes on the CPU.
        driver_bytes: Forecast of the driver's process on the same machine.
    """
    requested = requested_devices(
        config.devices, solver_mode_is_gpu=solver.message.solver_mode == caffe_pb2.SolverParameter.GPU
    )
    gpus = host_gpus(environment) if requested.kind == "gpu" else None
    steps = _step_bytes(plan, net, solver)
    if gpus is not None and (gpus.addresses or requested.is_required):
        available, room = gpu_memory_bytes(environment), "the smallest GPU of this host"
        if available is None:
            room = f"not known here: {gpus.reason or 'nvidia-smi does not say'}"
        elif config.share_gpus:
            available //= max(1, ceil(config.n_workers * len(steps) / len(gpus.addresses)))
            room = "a share of the smallest GPU of this host"
        return tuple(WorkerRow(device, "GPU", step, available, room) for device, step in enumerate(steps))
    available = max(0, host_memory_bytes() - driver_bytes) // config.n_workers
    room = "its share of this machine" if config.n_workers > 1 else "this machine, less the driver"
    if len(steps) == 1:
        return (WorkerRow(0, "CPU", process_bytes, available, room),)
    name = "logical device of the CPU"
    return tuple(
        WorkerRow(device, name, step, available, f"{room}, for all of them") for device, step in enumerate(steps)
    )


def _step_bytes(plan: ComputePlan, net: NetSpec, solver: SolverSpec) -> list[int]:
    """Return what a training step takes on each device; a placement's parts, or of each replica the whole net."""
    if plan.placement is not None:
        return [row.memory_bytes for row in device_rows(plan, net, solver)]
    step = step_memory(net, step_shape(solver), plan.recompute)
    return [step.total_bytes] * plan.n_devices
