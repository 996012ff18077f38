"""How many minibatches a worker takes between exchanges so that all push equally often. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

_WINDOW = 5
_ENOUGH = 3
"""Grants that a worker's pace is known after: the first call of a graph also optimises it."""


@dataclass
class _Pace:
    """Of one worker.

    Attributes:
        want: Minibatches that it last asked for.
        seconds: For a minibatch, of its last grants.
    """

    want: int
    seconds: list[float] = field(default_factory=list)


class WorkerPaces:
    """Dynamic local updates (Liu et al. 2024, arXiv 2401.09135): H_w = H v_w / max v. Not thread-safe.

    v_w is the minibatches per second of a worker's last grants, with what an exchange takes of them; H what the worker
    that asks for most asks for. Rounded, where the paper takes the whole part, since measured speeds of equal workers
    differ by a few per cent.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._paces: dict[int, _Pace] = {}

    def share(self, worker: int, want: int) -> int:
        """Return how many of the ``want`` minibatches a worker gets, at least 1; all until its pace is known."""
        worker_pace = self._paces.setdefault(worker, _Pace(want))
        worker_pace.want = want
        if len(worker_pace.seconds) < _ENOUGH:
            return want
        fastest = min(median(pace.seconds) for pace in self._paces.values() if len(pace.seconds) >= _ENOUGH)
        longest = max(pace.want for pace in self._paces.values())
        return min(want, max(1, round(longest * fastest / median(worker_pace.seconds))))

    def measure(self, worker: int, seconds: float, n_steps: int) -> None:
        """Take a grant's seconds, from its request to the end of its exchange; without minibatches they say nothing."""
        if n_steps and seconds > 0 and worker in self._paces:
            step_times = self._paces[worker].seconds
            step_times.append(seconds / n_steps)
            del step_times[:-_WINDOW]

    def forget(self, worker: int) -> None:
        """A worker is gone, or another process: its pace is measured anew."""
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
