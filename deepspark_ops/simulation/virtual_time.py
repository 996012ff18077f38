"""Virtual seconds for many workers: each worker is a thread, and only the earliest worker's thread runs.

So the workers' times alone decide the order of all actions; equal times are ordered by worker number.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Sequence

from deepspark_ops.errors import TrainingFailed

_LOOK_S = 1.0
"""Interval between checks of a waiting thread whether the run was stopped, seconds of the host."""


class WorkerDied(Exception):
    """The virtual worker of this thread dies now."""


class _Stopped(Exception):
    """Another worker's thread has failed."""


class VirtualTime:
    """The time of all workers, and the running worker. Only the running thread may call methods, except ``run``."""

    def __init__(self, n_workers: int) -> None:
        """Start at second 0."""
        self._now = 0.0
        self._due: list[tuple[float, int, int]] = []  # time, worker, number of the entry
        self._entries = [0] * n_workers  # of each worker; only the last one counts
        self._turns = [threading.Semaphore(0) for _ in range(n_workers)]
        self._asleep: set[int] = set()
        self._failure: BaseException | None = None

    def now(self) -> float:
        """Return the virtual seconds since the start."""
        return self._now

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Run every worker's work to its end.

        Raises:
            BaseException: What the first work that failed has raised; the others are stopped.
        """
        threads = [
            threading.Thread(target=self._live, args=(worker, work), name=f"worker {worker}", daemon=True)
            for worker, work in enumerate(works)
        ]
        for worker, thread in enumerate(threads):
            self._enter(worker, 0.0)
            thread.start()
        self._pass_on()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_until(self, worker: int, moment: float) -> None:
        """Continue at a moment, after all earlier actions of others."""
        self._enter(worker, max(moment, self._now))
        if self._due[0][1] == worker:  # no other worker is earlier: no thread has to wake
            self._now = heapq.heappop(self._due)[0]
            return
        self._pass_on()
        self._await_turn(worker)

    def sleep_on(self, worker: int, latest: float) -> bool:
        """Wait for ``wake_if_asleep`` by another worker; return False if ``latest`` comes first."""
        self._asleep.add(worker)
        if math.isfinite(latest):
            self._enter(worker, latest)
        self._pass_on()
        self._await_turn(worker)
        was_woken = worker not in self._asleep
        self._asleep.discard(worker)
        return was_woken

    def wake_if_asleep(self, worker: int) -> None:
        """Make a sleeping worker continue at the present moment."""
        if worker in self._asleep:
            self._asleep.discard(worker)
            self._enter(worker, self._now)

    def _enter(self, worker: int, moment: float) -> None:
        self._entries[worker] += 1
        heapq.heappush(self._due, (moment, worker, self._entries[worker]))

    def _pass_on(self) -> None:
        """Wake the thread of the earliest worker."""
        while self._due:
            moment, worker, entry = heapq.heappop(self._due)
            if entry == self._entries[worker]:
                self._now = moment
                self._turns[worker].release()
                return
        if self._asleep:
            waiting = ", ".join(map(str, sorted(self._asleep)))
            self._fail(TrainingFailed(f"virtual workers {waiting} wait for each other, and nobody is left to go on"))

    def _await_turn(self, worker: int) -> None:
        while not self._turns[worker].acquire(timeout=_LOOK_S):
            if self._failure is not None:
                raise _Stopped
        if self._failure is not None:
            raise _Stopped

    def _live(self, worker: int, work: Callable[[], None]) -> None:
        try:
            self._await_turn(worker)
            work()
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame: ``run`` raises it again
            self._fail(error)
            return
        self._pass_on()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        for turn in self._turns:
            turn.release()


class WorkerTime:
    """A ``WorkerClock`` of a virtual worker that dies at planned moments."""

    def __init__(self, time: VirtualTime, worker: int, deaths: Sequence[float] = ()) -> None:
        """Take the moments of the worker's deaths, ascending."""
        self.worker = worker
        self._time = time
        self._deaths = [*deaths, math.inf]

    def now(self) -> float:
        """See ``WorkerClock``."""
        return self._time.now()

    def sleep(self, seconds: float) -> None:
        """See ``WorkerClock``.

        Raises:
            WorkerDied: It is killed meanwhile.
        """
        self.until(self._time.now() + seconds)

    def until(self, moment: float) -> None:
        """Let time pass until a moment.

        Raises:
            WorkerDied: It is killed meanwhile.
        """
        self._time.wait_until(self.worker, min(moment, self._deaths[0]))
        if self._deaths[0] <= moment:
            self._die()

    def pause(self, seconds: float) -> None:
        """Let time pass without a death: a dead worker does not die."""
        back = self._time.now() + seconds
        self._time.wait_until(self.worker, back)
        self._deaths = [moment for moment in self._deaths if moment > back]

    def until_woken(self) -> None:
        """Wait until another worker wakes this worker.

        Raises:
            WorkerDied: It is killed meanwhile.
        """
        if not self._time.sleep_on(self.worker, self._deaths[0]):
            self._die()

    def _die(self) -> None:
        moment = self._deaths.pop(0)
        msg = f"worker {self.worker} dies at second {moment:g}"
        raise WorkerDied(msg)
