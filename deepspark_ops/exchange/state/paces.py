"""Numbers of minibatches between a worker's exchanges that make all workers push equally often. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

_WINDOW = 5
_ENOUGH = 3
"""Number of grants before a worker's pace is known: the first call of a graph also optimises the graph."""


@dataclass
class _Pace:
    """The pace of one worker.

    Attributes:
        want: Minibatches that it last asked for.
        seconds: For a minibatch, of its last grants.
    """

    want: int
    seconds: list[float] = field(default_factory=list)


class WorkerPaces:
    """Dynamic local updates (Liu et al. 2024, arXiv 2401.09135): H_w = H v_w / max v. Not thread-safe.

    v_w is the minibatches per second of a worker's last grants, exchanges included; H is the largest request of a
    worker. The number is rounded to the nearest, where the paper rounds down, because measured speeds of equal workers
    differ by a few per cent.
    """

    def __init__(self) -> None:
        """Start without paces."""
        self._paces: dict[int, _Pace] = {}

    def share(self, worker: int, want: int) -> int:
        """Return a worker's share of ``want`` minibatches, at least 1; all until the worker's pace is known."""
        worker_pace = self._paces.setdefault(worker, _Pace(want))
        worker_pace.want = want
        if len(worker_pace.seconds) < _ENOUGH:
            return want
        fastest = min(median(pace.seconds) for pace in self._paces.values() if len(pace.seconds) >= _ENOUGH)
        longest = max(pace.want for pace in self._paces.values())
        return min(want, max(1, round(longest * fastest / median(worker_pace.seconds))))

    def measure(self, worker: int, seconds: float, n_steps: int) -> None:
        """Note a grant's seconds, from request to end of the exchange; a grant without minibatches is ignored."""
        if n_steps and seconds > 0 and worker in self._paces:
            step_times = self._paces[worker].seconds
            step_times.append(seconds / n_steps)
            del step_times[:-_WINDOW]

    def forget(self, worker: int) -> None:
        """Forget the pace of a lost or restarted worker."""
        self._paces.pop(worker, None)

    def to_state(self) -> list[Any]:
        """Return everything as plain JSON values."""
        return [[worker, pace.want, pace.seconds] for worker, pace in self._paces.items()]

    @classmethod
    def of_state(cls, state: Sequence[Any]) -> WorkerPaces:
        """Inverse of ``to_state``."""
        paces = cls()
        paces._paces = {worker: _Pace(want, list(seconds)) for worker, want, seconds in state}
        return paces
