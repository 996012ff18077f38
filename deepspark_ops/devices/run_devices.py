"""What the driver decides of the workers' devices before Spark starts, as it travels to them. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.wanted import WantedDevices


@dataclass(frozen=True)
class RunDevices:
    """The devices of a run.

    Attributes:
        wanted: What each worker asks for.
        dealt: What each gets, by worker id, in local mode; empty on a cluster, where Spark assigns it to the tasks.
    """

    wanted: WantedDevices
    dealt: tuple[AssignedDevices, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {"wanted": self.wanted.to_plain(), "dealt": [one.to_plain() for one in self.dealt]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RunDevices:
        """Return what ``to_plain`` was called of."""
        dealt = tuple(AssignedDevices.from_plain(one) for one in plain["dealt"])
        return cls(WantedDevices.from_plain(plain["wanted"]), dealt)

    def lines(self) -> list[str]:
        """Return what each worker gets as far as it is known yet, one text per worker."""
        return [one.line() for one in self.dealt]
