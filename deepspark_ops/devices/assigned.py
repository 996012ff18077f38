"""What a worker may compute on, as plain data that travels to it. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class AssignedDevices:
    """What one worker computes on.

    Attributes:
        kind: ``gpu``: on the GPUs named below; ``cpu``: on the host's cores, and no GPU is visible to the worker.
        gpus: The GPUs' addresses as ``CUDA_VISIBLE_DEVICES`` takes them, in the order in which the worker counts its
            devices; empty for ``cpu``.
        n_threads: Threads that TensorFlow's kernels on the CPU may use, 1 or more.
        note: Why it is not what the options and the solver ask for, one line; None if it is.
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
        """Return the devices as a log line names them.

        Example:
            >>> AssignedDevices("gpu", ("0", "3"), 2).line(), AssignedDevices().line()
            ('GPU 0, GPU 3, 2 threads', 'CPU, 1 thread')
        """
        names = [f"GPU {gpu}" for gpu in self.gpus] if self.kind == "gpu" else ["CPU"]
        return ", ".join([*names, f"{self.n_threads} thread{'s' if self.n_threads > 1 else ''}"])
