"""A run with fewer task slots than workers: said soon, again at the end, and a failure below ``min_workers``. No Spark.

A worker needs a slot of the cluster for as long as the run lasts, so that one without a slot waits for another's end.
The exchange does not need all of them: the run goes on with those that are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deepspark_ops.errors import TrainingFailed

LOOK_EVERY_S: Final = 1.0
TELL_S: Final = 20.0
"""Too few for this long is said: executors that are being started are there before."""


@dataclass(frozen=True)
class Slots:
    """What a cluster gives a run at one moment.

    Attributes:
        taken: Workers whose tasks run.
        offered: Tasks that the executors could run at once; None where the cluster does not say.
        executors: Executors that are there.
    """

    taken: int
    offered: int | None
    executors: int


class SlotWatch:
    """Looks at the slots of a run while it trains. Used by one thread.

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
            min_workers: Fewer than this for ``wait_s`` fail the run.
            wait_s: Seconds.
            master: Spark master, for messages.
            needs: What an executor must offer for a worker, for messages; empty for nothing but a core.
            now: Seconds, for tests.
        """
        self.most = 0
        self._n_workers, self._min_workers, self._wait_s = n_workers, min_workers, wait_s
        self._master, self._needs, self._now = master, needs, now
        self._quiet_from = self._enough_at = now()
        self._looked_at: float | None = None
        self._told: int | None = None
        self._last: Slots | None = None

    def look(self, slots: Callable[[], Slots | None]) -> str | None:
        """Look at most once in ``LOOK_EVERY_S``; return what the user must be told now.

        Args:
            slots: Asks the cluster; None where it does not say.

        Raises:
            TrainingFailed: Fewer than ``min_workers`` have had a slot for ``wait_s``.
        """
        now = self._now()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = now
        if (found := slots()) is None:
            return None
        self._last = found
        self.most = max(self.most, found.taken)
        if found.taken >= self._min_workers:
            self._enough_at = now
        elif now - self._enough_at >= self._wait_s:
            raise TrainingFailed(self._too_few(found))
        return self._change(found, now)

    def at_end(self) -> str | None:
        """Return what is said at the end of a run that never had a slot for each worker; None for any other."""
        if self._last is None or self.most >= self._n_workers:
            return None
        if self._told is None and (self._last.offered is None or self._last.offered >= self._n_workers):
            return None  # too short to have been looked at while all of them ran
        return (
            f"at most {_of(self.most, self._n_workers)} had a slot at once: master={self._master} offered"
            f" {_offer(self._last)}; give --n-workers {max(1, self.most)}, or more cores"
        )

    def _change(self, found: Slots, now: float) -> str | None:
        if found.taken >= self._n_workers:
            self._quiet_from = now
            text = f"all {self._n_workers} workers have a slot now" if self._told is not None else None
            self._told = None
            return text
        # Said for what a cluster lacks from the start; a worker that is started again has its own lines.
        is_news = self.most < self._n_workers and (self._told is None or self.most > self._told)
        if not is_news or now - self._quiet_from < TELL_S:
            return None
        self._told, self._quiet_from = self.most, now
        goes_on = "the run goes on with those, the others join when they get one" if found.taken else "still waiting"
        limit = ""
        if found.taken < self._min_workers:
            limit = f"; with fewer than min_workers={self._min_workers} it fails after {self._wait_s:g} s"
        return f"{_of(found.taken, self._n_workers)} have a slot; {self._cluster(found)}; {goes_on}{limit}"

    def _too_few(self, found: Slots) -> str:
        return (
            f"{_of(found.taken, self._n_workers)} have a slot; fewer than min_workers={self._min_workers} had one for"
            f" min_workers_wait_s={self._wait_s:g} seconds; {self._cluster(found)}: end other applications there, add"
            " executors or cores, or lower n_workers or min_workers"
        )

    def _cluster(self, found: Slots) -> str:
        needed = f", and each needs {self._needs}" if self._needs else ""
        return f"the cluster offers {_offer(found)} (master={self._master}{needed})"


def _of(taken: int, wanted: int) -> str:
    return f"{taken} of {wanted} workers"


def _offer(found: Slots) -> str:
    """Return in words what the executors could run at once.

    Example:
        >>> _offer(Slots(2, 2, 1)), _offer(Slots(0, 0, 0))
        ('2 slots in 1 executor', 'no executor')
    """
    if not found.executors:
        return "no executor"
    executors = f"{found.executors} executor{'s' if found.executors > 1 else ''}"
    if found.offered is None:
        return executors
    return f"{found.offered} slot{'s' if found.offered != 1 else ''} in {executors}"
