"""A run with fewer task slots than workers: lines soon and at the end, a failure below ``min_workers``. No Spark.

A worker needs a slot of the cluster as long as the run lasts. So a worker without a slot waits for another's end.
The exchange does not need all workers: the run goes on with the present workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deepspark_ops.errors import TrainingFailed

LOOK_EVERY_S: Final = 1.0
TELL_S: Final = 20.0
"""A lack of slots is reported after this time: starting executors are ready before."""


@dataclass(frozen=True)
class Slots:
    """A cluster's slots for a run at a moment.

    Attributes:
        n_running: Workers whose tasks run.
        offered: Tasks that the executors could run at once; None if the cluster gives no number.
        executors: Present executors.
    """

    n_running: int
    offered: int | None
    executors: int


class SlotWatch:
    """Looks at the slots of a run during the training. Used by a single thread.

    Attributes:
        most: Workers that had a slot at once, at most.
    """

    def __init__(
        self,
        *,
        n_workers: int,
        min_workers: int,
        wait_s: float,
        master: str,
        needs: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count now.

        Args:
            n_workers: Slots wanted.
            min_workers: A smaller number of slots for ``wait_s`` fails the run.
            wait_s: Seconds.
            master: Spark master, for messages.
            needs: Resources of an executor for a worker besides a core, for messages.
            now: Seconds, for tests.
        """
        self.most = 0
        self._n_workers, self._min_workers, self._wait_s = n_workers, min_workers, wait_s
        self._master, self._needs, self._now = master, needs, now
        self._quiet_from = self._enough_at = now()
        self._looked_at: float | None = None
        self._reported: int | None = None
        self._last: Slots | None = None

    def look(self, slots: Callable[[], Slots | None]) -> str | None:
        """Look at most once in ``LOOK_EVERY_S``; return the message for the user, if any.

        Args:
            slots: Asks the cluster; returns None without an answer.

        Raises:
            TrainingFailed: Fewer than ``min_workers`` have had a slot for ``wait_s``.
        """
        now = self._now()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = now
        if (present := slots()) is None:
            return None
        self._last = present
        self.most = max(self.most, present.n_running)
        if present.n_running >= self._min_workers:
            self._enough_at = now
        elif now - self._enough_at >= self._wait_s:
            raise TrainingFailed(self._too_few(present))
        return self._change(present, now)

    def at_end(self) -> str | None:
        """Return the message at the end of a run that never had a slot for each worker; None for any other run."""
        if self._last is None or self.most >= self._n_workers:
            return None
        if self._reported is None and (self._last.offered is None or self._last.offered >= self._n_workers):
            return None  # the run was too short for a look while all workers ran
        return (
            f"at most {_of(self.most, self._n_workers)} had a slot at once: master={self._master} offered"
            f" {_offer(self._last)}; give --n-workers {max(1, self.most)}, or more cores"
        )

    def _change(self, slots: Slots, now: float) -> str | None:
        if slots.n_running >= self._n_workers:
            self._quiet_from = now
            text = f"all {self._n_workers} workers have a slot now" if self._reported is not None else None
            self._reported = None
            return text
        # For slots that the cluster lacks from the start; each restart of a worker has another line.
        is_news = self.most < self._n_workers and (self._reported is None or self.most > self._reported)
        if not is_news or now - self._quiet_from < TELL_S:
            return None
        self._reported, self._quiet_from = self.most, now
        goes_on = (
            "the run goes on with those, the others join when they get one" if slots.n_running else "still waiting"
        )
        limit = ""
        if slots.n_running < self._min_workers:
            limit = f"; with fewer than min_workers={self._min_workers} it fails after {self._wait_s:g} s"
        return f"{_of(slots.n_running, self._n_workers)} have a slot; {self._cluster(slots)}; {goes_on}{limit}"

    def _too_few(self, slots: Slots) -> str:
        return (
            f"{_of(slots.n_running, self._n_workers)} have a slot; fewer than min_workers={self._min_workers} had one"
            f" for min_workers_wait_s={self._wait_s:g} seconds; {self._cluster(slots)}: end other applications there,"
            " add executors or cores, or lower n_workers or min_workers"
        )

    def _cluster(self, slots: Slots) -> str:
        needed = f", and each needs {self._needs}" if self._needs else ""
        return f"the cluster offers {_offer(slots)} (master={self._master}{needed})"


def _of(n_running: int, n_workers: int) -> str:
    return f"{n_running} of {n_workers} workers"


def _offer(slots: Slots) -> str:
    """Return in words how many tasks the executors could run at once.

    Example:
        >>> _offer(Slots(2, 2, 1)), _offer(Slots(0, 0, 0))
        ('2 slots in 1 executor', 'no executor')
    """
    if not slots.executors:
        return "no executor"
    executors = f"{slots.executors} executor{'s' if slots.executors > 1 else ''}"
    if slots.offered is None:
        return executors
    return f"{slots.offered} slot{'s' if slots.offered != 1 else ''} in {executors}"
