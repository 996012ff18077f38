"""When a round of a strategy whose workers wait for each other is over. Pure logic."""

from __future__ import annotations

from collections.abc import Collection

from deepspark_ops.exchange.rounds.round_closing import RoundNote


class Rounds:
    """Who has pushed in the present round. Not thread-safe: the coordinator holds its lock around every call.

    Expected are the live workers with steps to do. The last steps of a run do not wait for workers that have none or
    that only test. Once a round is over, a new process counts from its first grant. A lost worker is not expected.

    Attributes:
        comm_period: The longest tau that a worker of the last round would choose: if each took its own, those with
            the shortest would always wait. 0: none was given.
    """

    def __init__(self, *, has_begun: bool = False) -> None:
        """Begin the first round, of the run unless ``has_begun``."""
        self.comm_period = 0
        self._has_begun = has_begun
        self._waiting: dict[int, int] = {}
        self._notes: dict[int, RoundNote] = {}
        self._released: dict[int, int] = {}
        self._idle: set[int] = set()
        self._is_closing = False

    @property
    def waiting(self) -> frozenset[int]:
        """Workers that have pushed in the present round."""
        return frozenset(self._waiting)

    def pushed(self, worker: int, sequence: int, note: RoundNote | None = None) -> None:
        """A worker has pushed everything of its exchange ``sequence``; a repeated message changes nothing."""
        if not self.is_released(worker, sequence):
            self._waiting[worker] = sequence
            if note is not None:
                self._notes[worker] = note

    def is_released(self, worker: int, sequence: int) -> bool:
        """Whether the round of that push is over."""
        return self._released.get(worker, 0) >= sequence

    def granted(self, worker: int, *, has_steps: bool) -> None:
        """A worker was answered: with steps it is expected, without it is not."""
        if has_steps:
            self._idle.discard(worker)
        else:
            self._idle.add(worker)

    def joined(self, worker: int) -> None:
        """A new process took a worker's place: its predecessor's pushes are not its own.

        It loads and compiles, for minutes with a large net, before its first grant. The first round waits for it, since
        all workers of a run start together; later rounds do not.
        """
        if self._has_begun:
            self._idle.add(worker)
        else:
            self._idle.discard(worker)
        self._waiting.pop(worker, None)
        self._notes.pop(worker, None)
        self._released.pop(worker, None)

    def is_complete(self, live: Collection[int]) -> bool:
        """Whether every expected worker has pushed, at least one has, and the round is not being closed already."""
        missing = set(live) - self._idle - self._waiting.keys()
        return bool(self._waiting) and not missing and not self._is_closing

    def close(self) -> dict[int, RoundNote]:
        """The caller begins to apply the round; until ``open`` it is the only one. Returns worker -> its note."""
        self._is_closing = True
        notes, self._notes = self._notes, {}
        self.comm_period = max((note.comm_period for note in notes.values()), default=0)
        return notes

    def open(self) -> None:
        """The round is applied: every worker that waited is released, and the next round begins."""
        self._released.update(self._waiting)
        self._waiting.clear()
        self._is_closing = False
        self._has_begun = True
