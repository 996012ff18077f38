"""The end of a worker. Imports the standard library only, so that a task without TensorFlow can load this module."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Ending = Literal["finished", "refused", "failed", "given_up", "replaced"]


@dataclass(frozen=True)
class WorkerOutcome:
    """The end of a worker; travels to the driver as plain values.

    Attributes:
        worker: The worker's id.
        ending: ``finished``; ``refused``: the user must correct an error; ``failed``: the run cannot go on;
            ``given_up``: every try failed; ``replaced``: another process is the worker now.
        message: For the user; empty if finished.
        steps: Minibatches of the last try.
        exchanges: Exchanges of the last try.
    """

    worker: int
    ending: Ending
    message: str = ""
    steps: int = 0
    exchanges: int = 0

    @property
    def ends_the_run(self) -> bool:
        """Whether no other worker can make up for this worker's end."""
        return self.ending in ("refused", "failed")

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
