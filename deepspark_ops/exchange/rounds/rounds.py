"""Decide when a round of a strategy with waiting workers is over. Pure logic; the caller passes the time."""

from __future__ import annotations

from collections.abc import Collection

from deepspark_ops.exchange.rounds.round_closing import RoundNote

START_WAIT_FACTOR = 2.0
"""The first round waits for a starting worker at most this many times as long as the slowest other worker needed."""
LEAST_START_WAIT_S = 10.0
"""The first round waits at least this long after a worker's join for the worker's first grant, seconds."""


class Rounds:
    """Records the pushes of the present round. Not thread-safe: the coordinator holds its lock around every call.

    A round needs the pushes of all live workers with steps. A worker without steps, a testing worker and a lost worker
    are not needed. A new process compiles its net before its first grant; no later round needs the process before
    the first grant. The first round waits for the first grants of all joined workers, because a
    common start makes a run repeatable. A slow start ends this wait: see ``START_WAIT_FACTOR``.

    A worker with a grant stays needed. Its push may arrive at any moment, and a round must not be applied while a push
    changes the sum.

    Attributes:
        comm_period: The longest tau that the workers of the last round proposed. With a tau for each worker, the
            workers with a short tau would always wait. 0: no proposal.
    """

    def __init__(self, *, has_begun: bool = False) -> None:
        """Begin the first round, of the run unless ``has_begun``."""
        self.comm_period = 0
        self._has_begun = has_begun
        self._waiting: dict[int, int] = {}
        self._notes: dict[int, RoundNote] = {}
        self._released: dict[int, int] = {}
        self._idle: set[int] = set()
        self._starting: dict[int, float] = {}  # before the first round's end: worker -> time of its join
        self._slowest_start_s = 0.0
        self._is_closing = False

    @property
    def waiting(self) -> frozenset[int]:
        """Workers that have pushed in the present round."""
        return frozenset(self._waiting)

    def pushed(self, worker: int, sequence: int, now: float, note: RoundNote | None = None) -> None:
        """A worker has pushed everything of its exchange ``sequence``; a repeated message changes nothing."""
        self._started(worker, now)
        if not self.is_released(worker, sequence):
            self._waiting[worker] = sequence
            if note is not None:
                self._notes[worker] = note

    def is_released(self, worker: int, sequence: int) -> bool:
        """Return whether the round of that push is over."""
        return self._released.get(worker, 0) >= sequence

    def granted(self, worker: int, now: float, *, has_steps: bool) -> None:
        """Need a worker that was given steps, and do not need a worker without steps."""
        self._started(worker, now)
        if has_steps:
            self._idle.discard(worker)
        else:
            self._idle.add(worker)

    def joined(self, worker: int, now: float) -> None:
        """Forget the pushes of the worker's previous process; the new process has to load and compile first."""
        if self._has_begun:
            self._idle.add(worker)
        else:
            self._idle.discard(worker)
            self._starting[worker] = now
        self._waiting.pop(worker, None)
        self._notes.pop(worker, None)
        self._released.pop(worker, None)

    def is_complete(self, live: Collection[int], now: float) -> bool:
        """Return whether a worker waits, every needed worker has pushed, and no other thread closes the round."""
        if not self._waiting or self._is_closing:
            return False
        if len(live) > len(self._idle) + len(self._waiting) + len(self._starting):
            return False  # some worker computes; the search below takes as long as there are workers
        missing = set(live) - self._idle - self._waiting.keys()
        return all(self._is_late(worker, now) for worker in missing)

    def close(self) -> dict[int, RoundNote]:
        """Return worker -> note. The caller applies the round, and no other round is closed until ``open``."""
        self._is_closing = True
        notes, self._notes = self._notes, {}
        self.comm_period = max((note.comm_period for note in notes.values()), default=0)
        return notes

    def open(self) -> None:
        """Release every worker of the applied round, and begin the next round."""
        self._released.update(self._waiting)
        self._waiting.clear()
        self._is_closing = False
        self._has_begun = True
        self._idle |= self._starting.keys()
        self._starting.clear()

    def _started(self, worker: int, now: float) -> None:
        joined = self._starting.pop(worker, None)
        if joined is not None:
            self._slowest_start_s = max(self._slowest_start_s, now - joined)

    def _is_late(self, worker: int, now: float) -> bool:
        wait_s = max(LEAST_START_WAIT_S, START_WAIT_FACTOR * self._slowest_start_s)
        return worker in self._starting and now - self._starting[worker] > wait_s
