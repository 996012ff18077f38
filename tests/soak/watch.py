"""Looks at a run from outside while faults hit it: who progresses when, and what processes hold."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.exchange.center.worker_counters import ENDED
from deepspark_ops.exchange.server.launch import RunningExchange
from deepspark_ops.exchange.transport.link import ExchangeStatus
from tests.soak.faults import InjectedFault

LOOK_S = 0.05
SAMPLE_S = 0.5
WARM_UP_S = 15.0
SETTLE_S = 5.0
"""So long after a fault and all recoveries a process counts as undisturbed."""


@dataclass(frozen=True)
class Sample:
    """Memory and open descriptors of a process at a time (``time.monotonic``); ``is_calm``: no fault was active."""

    at: float
    rss_bytes: int
    n_descriptors: int
    is_calm: bool


@dataclass
class Life:
    """A process from start to end.

    Attributes:
        role: ``server`` or ``worker 2``.
        pid: Its id.
        samples: In order of time.
        warm_at: When its warm-up ended, ``time.monotonic``.
    """

    role: str
    pid: int
    samples: list[Sample] = field(default_factory=list)
    warm_at: float = float("inf")

    def settled(self) -> list[Sample]:
        """Return the samples after the warm-up."""
        return [sample for sample in self.samples if sample.at > self.warm_at]


class Watch:
    """Follows the clock, the exchanges of each worker, and the processes; of one run.

    Attributes:
        clock: (time, steps that the server counts as done), each time it has grown.
        exchanges: Worker -> times at which it had ended exchanges.
        lives: By process id.
        status: The server's last answer.
        pids: Every process that was seen.
    """

    def __init__(self, running: RunningExchange, worker_pids: Callable[[], Mapping[int, int]]) -> None:
        """Look at nothing before ``start``."""
        self.clock: list[tuple[float, int]] = []
        self.exchanges: dict[int, list[float]] = {w: [] for w in range(running.settings.n_workers)}
        self.lives: dict[int, Life] = {}
        self.status: ExchangeStatus | None = None
        self._at_begin: Callable[[], None] | None = None
        self._running = running
        self._worker_pids = worker_pids
        self._open: list[InjectedFault] = []
        self._lasting = 0
        self._calm_since = 0.0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"watch {target.__name__}")
            for target in (self._follow_clock, self._follow_workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def when_begun(self, action: Callable[[], None]) -> None:
        """Call ``action`` when the first step is counted; before ``start``."""
        self._at_begin = action

    def stop(self) -> None:
        """Look no more; the run may go."""
        self._is_over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def lives_until(self, at: float, warmed: Mapping[str, Sequence[Sequence[float]]]) -> list[Life]:
        """Return the lives with what was seen of them until then: at the end of a run processes let go of everything.

        A process is warm ``WARM_UP_S`` after its first exchange, the server after everybody's first exchange. A process
        is also warm ``WARM_UP_S`` after each first action that takes memory once.

        Args:
            at: Seconds, ``time.monotonic``.
            warmed: Role -> for each such thing, times at which processes of it did it, in order.
        """
        lives = []
        for pid, life in self.lives.items():
            samples = [sample for sample in life.samples if sample.at <= at and sample.rss_bytes]
            if samples:
                begun, ended = samples[0].at, samples[-1].at
                workers = self.exchanges if life.role == "server" else [int(life.role.rpartition(" ")[2])]
                first = [next((t for t in self.exchanges[worker] if t >= begun), ended) for worker in workers]
                more = [next((t for t in times if begun <= t <= ended), begun) for times in warmed.get(life.role, ())]
                lives.append(Life(life.role, pid, samples, max(*first, *more, begun) + WARM_UP_S))
        return lives

    def fault_begun(self, injected: InjectedFault) -> None:
        with self._lock:
            self._lasting += 1

    def fault_ended(self, injected: InjectedFault) -> None:
        with self._lock:
            self._lasting -= 1
            self._open.append(injected)
            self._calm_since = time.monotonic()

    def _follow_clock(self) -> None:
        steps = -1
        while not self._is_over.wait(LOOK_S):
            counted_at = time.monotonic()
            try:
                status = self._running.poll()
            except DeepSparkError:
                continue
            now = time.monotonic()
            self.status = status
            if status.acknowledged > steps >= 0:  # a run that goes on begins above 0
                if self._at_begin is not None:
                    self._at_begin()
                    self._at_begin = None
                self.clock.append((now, status.acknowledged))
                self._recovered(None, counted_at, now)
            steps = status.acknowledged

    def _follow_workers(self) -> None:
        counters = self._running.center.all_counters[0]
        last_ends = [0] * len(self.exchanges)
        next_sample = 0.0
        while not self._is_over.wait(LOOK_S):
            now = time.monotonic()
            for worker, times in self.exchanges.items():
                ended = int(counters[worker, ENDED])
                if ended > last_ends[worker]:
                    times.append(now)
                    self._recovered(worker, now, now)
                last_ends[worker] = ended
            if now >= next_sample:
                next_sample = now + SAMPLE_S
                self._sample(now)

    def _recovered(self, worker: int | None, since: float, now: float) -> None:
        """Progress of a worker, or of the clock, as the server said to a call at ``since``."""
        with self._lock:
            for injected in self._open:
                if worker is None and injected.clock_s is None and since > injected.ended + LOOK_S:
                    injected.clock_s = now - injected.ended
                    injected.stall_s = self._longest_stall(injected.begun, now)
                if worker is not None and worker == injected.fault.worker and injected.worker_s is None:
                    injected.worker_s = now - injected.ended
            still = [
                injected
                for injected in self._open
                if injected.clock_s is None or (injected.fault.worker >= 0 and injected.worker_s is None)
            ]
            if len(still) < len(self._open):
                self._calm_since = now
            self._open = still

    def _longest_stall(self, begun: float, now: float) -> float:
        times = [at for at, _ in self.clock if at > begun]
        last_before = [at for at, _ in self.clock if at <= begun][-1:]
        stops = [*last_before, *times, now]
        return max((later - earlier for earlier, later in pairwise(stops)), default=0.0)

    def _sample(self, now: float) -> None:
        with self._lock:
            is_calm = not self._open and not self._lasting and now - self._calm_since > SETTLE_S
        roles = {self._running.pid: "server"} if self._running.pid else {}
        roles |= {pid: f"worker {worker}" for worker, pid in self._worker_pids().items()}
        for pid, role in roles.items():
            with suppress(OSError):
                rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                opened = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
                n_descriptors = sum(".lmdb/" not in path for path in opened)
                life = self.lives.setdefault(pid, Life(role, pid))
                life.samples.append(Sample(now, rss, n_descriptors, is_calm))
