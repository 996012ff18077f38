"""Devices of a worker, as plain data to send to the worker. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class AssignedDevices:
    """Devices of a worker.

    Attributes:
        kind: ``gpu``: the GPUs in ``gpus``; ``cpu``: the host's cores, and no GPU is visible to the worker.
        gpus: Addresses of the GPUs in the form of ``CUDA_VISIBLE_DEVICES``, in the order of the worker's device
            numbers; empty for ``cpu``.
        n_threads: Threads for TensorFlow's kernels on the CPU, 1 or more.
        note: Reason of a difference from options and solver, one line; None without a difference.
    """

    kind: Kind = "cpu"
    gpus: tuple[str, ...] = ()
    n_threads: int = 1
    note: str | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "gpus": list(self.gpus)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> AssignedDevices:
        """Return what ``to_plain`` was called of."""
        return cls(**{**plain, "gpus": tuple(plain["gpus"])})

    def line(self) -> str:
        """Return the devices in the form of a log line.

        Example:
            >>> AssignedDevices("gpu", ("0", "3"), 2).line(), AssignedDevices().line()
            ('GPU 0, GPU 3, 2 threads', 'CPU, 1 thread')
        """
        names = [f"GPU {gpu}" for gpu in self.gpus] if self.kind == "gpu" else ["CPU"]
        return ", ".join([*names, f"{self.n_threads} thread{'s' if self.n_threads > 1 else ''}"])
