"""Virtual seconds for many workers: each worker is a thread, and only the earliest thread runs.

So the workers' times alone decide the order of all actions; equal times are ordered by worker number.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from deepspark_ops.errors import TrainingFailed

_Result = TypeVar("_Result")
_LOOK_S = 1.0
"""Interval between checks of a waiting thread whether the run was stopped, seconds of the host."""


class WorkerDied(Exception):
    """The virtual worker of this thread dies now."""


class _Stopped(Exception):
    """Another worker's thread has failed."""


class VirtualTime:
    """The time of all workers, and the running thread. Only the running thread may call methods, except ``run``.

    A thread beside worker w, of p workers, has the number p + w: at equal times workers go first.
    """

    def __init__(self, n_workers: int) -> None:
        """Start at second 0."""
        self._now = 0.0
        self._n_workers = n_workers
        self._running = 0
        self._due: list[tuple[float, int, int]] = []  # time, thread, number of the entry
        self._entries = [0] * 2 * n_workers  # of each thread; only the last one counts
        self._turns = [threading.Semaphore(0) for _ in range(2 * n_workers)]
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
        threads = [self._start(worker, work) for worker, work in enumerate(works)]
        self._pass_on()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def start_beside(self, worker: int, work: Callable[[], None]) -> None:
        """Start a worker's second thread, at the present moment."""
        self._start(self._n_workers + worker, work)

    def wait_until(self, moment: float) -> None:
        """Continue at a moment, after all earlier actions of others."""
        thread = self._running
        self._enter(thread, max(moment, self._now))
        if self._due[0][1] == thread:  # no other thread is earlier: no thread has to wake
            self._now = heapq.heappop(self._due)[0]
            return
        self._pass_on()
        self._await_turn(thread)

    def sleep_on(self, latest: float) -> bool:
        """Wait for ``wake_if_asleep`` by another thread; return False if ``latest`` comes first."""
        thread = self._running
        self._asleep.add(thread)
        if math.isfinite(latest):
            self._enter(thread, latest)
        self._pass_on()
        self._await_turn(thread)
        was_woken = thread not in self._asleep
        self._asleep.discard(thread)
        return was_woken

    def wake_if_asleep(self, worker: int) -> None:
        """Make a worker's sleeping thread continue at the present moment."""
        if worker in self._asleep:
            self._asleep.discard(worker)
            self._enter(worker, self._now)

    def _start(self, number: int, work: Callable[[], None]) -> threading.Thread:
        self._enter(number, self._now)
        thread = threading.Thread(target=self._live, args=(number, work), name=f"worker {number}", daemon=True)
        thread.start()
        return thread

    def _enter(self, thread: int, moment: float) -> None:
        self._entries[thread] += 1
        heapq.heappush(self._due, (moment, thread, self._entries[thread]))

    def _pass_on(self) -> None:
        """Wake the earliest thread."""
        while self._due:
            moment, thread, entry = heapq.heappop(self._due)
            if entry == self._entries[thread]:
                self._now, self._running = moment, thread
                self._turns[thread].release()
                return
        if self._asleep:
            waiting = ", ".join(map(str, sorted(self._asleep)))
            self._fail(TrainingFailed(f"virtual workers {waiting} wait for each other, and nobody is left to go on"))

    def _await_turn(self, thread: int) -> None:
        while not self._turns[thread].acquire(timeout=_LOOK_S):
            if self._failure is not None:
                raise _Stopped
        if self._failure is not None:
            raise _Stopped

    def _live(self, thread: int, work: Callable[[], None]) -> None:
        try:
            self._await_turn(thread)
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
        self._time.wait_until(min(moment, self._deaths[0]))
        if self._deaths[0] <= moment:
            self._die()

    def pause(self, seconds: float) -> None:
        """Let time pass without a death: a dead worker does not die."""
        back = self._time.now() + seconds
        self._time.wait_until(back)
        self._deaths = [moment for moment in self._deaths if moment > back]

    def until_woken(self) -> None:
        """Wait until another worker wakes this worker.

        Raises:
            WorkerDied: It is killed meanwhile.
        """
        if not self._time.sleep_on(self._deaths[0]):
            self._die()

    def thread(self) -> Executor:
        """See ``WorkerClock``."""
        return _ThreadBeside(self._time, self.worker)

    def _die(self) -> None:
        moment = self._deaths.pop(0)
        msg = f"worker {self.worker} dies at second {moment:g}"
        raise WorkerDied(msg)


class _ThreadBeside(Executor):
    """Runs one work at a time beside a worker, in virtual time."""

    def __init__(self, time: VirtualTime, worker: int) -> None:
        self._time = time
        self._worker = worker
        self._last: _FutureBeside[Any] | None = None

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """See ``Executor``; the work before has ended."""
        future: _FutureBeside[_Result] = _FutureBeside(self._time)

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - the worker's thread raises the error again
                future.set_exception(error)
            self._time.wake_if_asleep(self._worker)

        self._last = future
        self._time.start_beside(self._worker, work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See ``Executor``."""
        if self._last is not None:
            self._last.exception()


class _FutureBeside(Future[_Result]):
    """The result of a work beside a worker; the worker's thread sleeps in virtual time until the work ends."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time

    def result(self, timeout: float | None = None) -> _Result:
        """See ``Future``."""
        self._await_end()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See ``Future``."""
        self._await_end()
        return super().exception(timeout)

    def _await_end(self) -> None:
        while not self.done():
            self._time.sleep_on(math.inf)
