"""What options and solver ask for, and what of it a worker gets where its GPUs are known. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from deepspark_ops.devices.assigned import AssignedDevices, Kind
from deepspark_ops.devices.host_cores import Threads
from deepspark_ops.errors import ConfigError

_OTHERWISE = "use devices=auto or devices=cpu"


@dataclass(frozen=True)
class WantedDevices:
    """What every worker of a run is to compute on.

    Attributes:
        kind: ``gpu``: on GPUs if there are any; ``cpu``: on none in any case.
        is_required: The worker must not compute on anything else than GPUs.
        per_worker: GPUs of each worker, 1 or more.
        is_shared: Several workers may use one GPU.
        first: Position among the host's GPUs of the first one to use where one worker runs: the solver's device_id.
        n_threads: ``TrainConfig.threads_per_worker``.
        is_written: Whether the solver itself says ``solver_mode: GPU``; else it is Caffe's default.
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
    def from_plain(cls, plain: Mapping[str, Any]) -> WantedDevices:
        """Return what ``to_plain`` was called of."""
        return cls(**plain)


def wanted_devices(
    devices: Literal["auto", "cpu", "gpu"],
    *,
    solver_mode_is_gpu: bool,
    is_written: bool = False,
    device_id: int = 0,
    per_worker: int = 1,
    is_shared: bool = False,
    n_threads: Threads = "auto",
) -> WantedDevices:
    """Return what is asked for; ``devices=auto`` takes Caffe's ``solver_mode``, whose default is GPU."""
    is_gpu = devices == "gpu" or (devices == "auto" and solver_mode_is_gpu)
    return WantedDevices(
        "gpu" if is_gpu else "cpu", devices == "gpu", per_worker, is_shared, device_id, n_threads, is_written
    )


def without_gpus(wanted: WantedDevices, reason: str, *, n_threads: int) -> AssignedDevices:
    """Return the host's cores for a worker that has no GPU, and if it asked for one, why.

    Args:
        wanted: What it asked for.
        reason: What was found instead of a GPU, a clause.
        n_threads: Its threads.

    Raises:
        ConfigError: It must not compute on anything else.
    """
    if wanted.kind == "cpu":
        return AssignedDevices("cpu", (), n_threads)
    if wanted.is_required:
        msg = f"devices=gpu: {reason}; make GPUs available to the workers (docs/guides/devices.md), or {_OTHERWISE}"
        raise ConfigError(msg)
    note = f"training on the CPU: {reason}"
    if wanted.is_written:
        note = f"the solver says solver_mode: GPU, but {reason}: training on the CPU, as with solver_mode: CPU"
    return AssignedDevices("cpu", (), n_threads, note)


def check_enough(wanted: WantedDevices, n_found: int, where: str) -> None:
    """Refuse more GPUs a worker than there are.

    Args:
        wanted: What a worker asks for.
        n_found: GPUs there, 1 or more.
        where: What has them, with its verb: "this host has".

    Raises:
        ConfigError: They are too few for one worker.
    """
    if wanted.per_worker > n_found:
        found = "1 GPU" if n_found == 1 else f"{n_found} GPUs"
        msg = (
            f"gpus_per_worker={wanted.per_worker}: {where} {found}; allowed: 1 to {n_found}, or devices=cpu, where"
            " the devices of a worker are logical ones of its CPU"
        )
        raise ConfigError(msg)
