"""How a worker ended. Imports the standard library only: it must be there where nothing else can be loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Ending = Literal["finished", "refused", "failed", "given_up", "replaced"]


@dataclass(frozen=True)
class WorkerOutcome:
    """How a worker ended; travels to the driver as plain values.

    Attributes:
        worker: Its id.
        ending: ``finished``; ``refused``: the user must correct something; ``failed``: the run itself cannot go on;
            ``given_up``: it failed in every try; ``replaced``: another process is the worker now.
        message: For the user; empty if finished.
        steps: Minibatches it computed in its last try.
        exchanges: Exchanges it made in its last try.
    """

    worker: int
    ending: Ending
    message: str = ""
    steps: int = 0
    exchanges: int = 0

    @property
    def ends_the_run(self) -> bool:
        """Whether no other worker can make up for this one."""
        return self.ending in ("refused", "failed")

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
