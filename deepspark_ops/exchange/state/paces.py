"""Numbers of minibatches between a worker's exchanges that make all workers push equally often. Pure arithmetic."""

from __future__ import annotations

import bisect
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
        step_s: Median of ``seconds``; None before there are enough.
    """

    want: int
    seconds: list[float] = field(default_factory=list)
    step_s: float | None = None


class _Sorted:
    """Values of workers in order: the least and the greatest are at hand without a look at each worker."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def replace(self, old: float | None, new: float | None) -> None:
        """Remove a value and insert another; None for no value."""
        if old is not None:
            del self._values[bisect.bisect_left(self._values, old)]
        if new is not None:
            bisect.insort(self._values, new)

    @property
    def least(self) -> float:
        return self._values[0]

    @property
    def greatest(self) -> float:
        return self._values[-1]


class WorkerPaces:
    """Dynamic local updates (Liu et al. 2024, arXiv 2401.09135): H_w = H v_w / max v. Not thread-safe.

    v_w is the minibatches per second of a worker's last grants, exchanges included; H is the largest request of a
    worker. The number is rounded to the nearest, where the paper rounds down, because measured speeds of equal workers
    differ by a few per cent.
    """

    def __init__(self) -> None:
        """Start without paces."""
        self._paces: dict[int, _Pace] = {}
        self._wants = _Sorted()
        self._step_times = _Sorted()

    def share(self, worker: int, want: int) -> int:
        """Return a worker's share of ``want`` minibatches, at least 1; all until the worker's pace is known."""
        pace = self._paces.get(worker)
        if pace is None:
            pace = self._paces[worker] = _Pace(want)
            self._wants.replace(None, want)
        self._wants.replace(pace.want, want)
        pace.want = want
        if pace.step_s is None:
            return want
        return min(want, max(1, round(self._wants.greatest * self._step_times.least / pace.step_s)))

    def measure(self, worker: int, seconds: float, n_steps: int) -> None:
        """Note a grant's seconds, from request to end of the exchange; a grant without minibatches is ignored."""
        if n_steps and seconds > 0 and worker in self._paces:
            pace = self._paces[worker]
            pace.seconds.append(seconds / n_steps)
            del pace.seconds[:-_WINDOW]
            self._take_median(pace)

    def forget(self, worker: int) -> None:
        """Forget the pace of a lost or restarted worker."""
        pace = self._paces.pop(worker, None)
        if pace is not None:
            self._wants.replace(pace.want, None)
            self._step_times.replace(pace.step_s, None)

    def to_state(self) -> list[Any]:
        """Return everything as plain JSON values."""
        return [[worker, pace.want, pace.seconds] for worker, pace in self._paces.items()]

    @classmethod
    def of_state(cls, state: Sequence[Any]) -> WorkerPaces:
        """Inverse of ``to_state``."""
        paces = cls()
        for worker, want, seconds in state:
            pace = paces._paces[worker] = _Pace(want, list(seconds))
            paces._wants.replace(None, want)
            paces._take_median(pace)
        return paces

    def _take_median(self, pace: _Pace) -> None:
        if len(pace.seconds) >= _ENOUGH:
            step_s = median(pace.seconds)
            self._step_times.replace(pace.step_s, step_s)
            pace.step_s = step_s
