"""Devices requested by options and solver, and the devices of a worker with known GPUs. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from deepspark_ops.devices.assigned import AssignedDevices, Kind
from deepspark_ops.devices.host_cores import Threads
from deepspark_ops.errors import ConfigError

_OTHERWISE = "use devices=auto or devices=cpu"


@dataclass(frozen=True)
class RequestedDevices:
    """Devices requested by every worker of a run.

    Attributes:
        kind: ``gpu``: GPUs if the host has GPUs; ``cpu``: never GPUs.
        is_required: The worker must not compute without GPUs.
        per_worker: GPUs of each worker, 1 or more.
        is_shared: Several workers may use one GPU.
        first: Index of the first GPU of a single worker: the solver's device_id.
        n_threads: ``TrainConfig.threads_per_worker``.
        is_written: Whether the solver's file has ``solver_mode: GPU``; else the mode is Caffe's default.
    """

    kind: Kind = "cpu"
    is_required: bool = False
    per_worker: int = 1
    is_shared: bool = False
    first: int = 0
    n_threads: Threads = "auto"
    is_written: bool = False

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RequestedDevices:
        """Return what ``to_plain`` was called of."""
        return cls(**plain)


def requested_devices(
    devices: Literal["auto", "cpu", "gpu"],
    *,
    solver_mode_is_gpu: bool,
    is_written: bool = False,
    device_id: int = 0,
    per_worker: int = 1,
    is_shared: bool = False,
    n_threads: Threads = "auto",
) -> RequestedDevices:
    """Return what is asked for; ``devices=auto`` takes Caffe's ``solver_mode``, whose default is GPU."""
    is_gpu = devices == "gpu" or (devices == "auto" and solver_mode_is_gpu)
    return RequestedDevices(
        "gpu" if is_gpu else "cpu", devices == "gpu", per_worker, is_shared, device_id, n_threads, is_written
    )


def without_gpus(requested: RequestedDevices, reason: str, *, n_threads: int) -> AssignedDevices:
    """Return the host's cores for a worker without GPU, with a note if the worker requested GPUs.

    Args:
        requested: Devices that the worker requests.
        reason: Reason of the missing GPU, a clause.
        n_threads: Threads of the worker.

    Raises:
        ConfigError: The worker requires GPUs.
    """
    if requested.kind == "cpu":
        return AssignedDevices("cpu", (), n_threads)
    if requested.is_required:
        msg = f"devices=gpu: {reason}; make GPUs available to the workers (docs/guides/devices.md), or {_OTHERWISE}"
        raise ConfigError(msg)
    note = f"training on the CPU: {reason}"
    if requested.is_written:
        note = f"the solver says solver_mode: GPU, but {reason}: training on the CPU, as with solver_mode: CPU"
    return AssignedDevices("cpu", (), n_threads, note)


def check_enough(requested: RequestedDevices, n_found: int, where: str) -> None:
    """Refuse more GPUs per worker than exist.

    Args:
        requested: Devices that a worker requests.
        n_found: Number of existing GPUs, 1 or more.
        where: Owner of the GPUs, with a verb: "this host has".

    Raises:
        ConfigError: The GPUs do not suffice for one worker.
    """
    if requested.per_worker > n_found:
        gpus_text = "1 GPU" if n_found == 1 else f"{n_found} GPUs"
        msg = (
            f"gpus_per_worker={requested.per_worker}: {where} {gpus_text}; allowed: 1 to {n_found}, or devices=cpu, "
            "where"
            " the devices of a worker are logical ones of its CPU"
        )
        raise ConfigError(msg)
