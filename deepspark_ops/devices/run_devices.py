"""The driver's decisions about the workers' devices before the start of Spark. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.requested import RequestedDevices


@dataclass(frozen=True)
class RunDevices:
    """The devices of a run.

    Attributes:
        requested: Devices that each worker requests.
        dealt: Devices of each worker, by worker id, in local mode; empty on a cluster, where Spark assigns devices.
    """

    requested: RequestedDevices
    dealt: tuple[AssignedDevices, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {"wanted": self.requested.to_plain(), "dealt": [devices.to_plain() for devices in self.dealt]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RunDevices:
        """Return the devices from the result of ``to_plain``."""
        dealt = tuple(AssignedDevices.from_plain(devices) for devices in plain["dealt"])
        return cls(RequestedDevices.from_plain(plain["wanted"]), dealt)

    def lines(self) -> list[str]:
        """Return the devices of each worker, if known, as a text per worker."""
        return [devices.line() for devices in self.dealt]
