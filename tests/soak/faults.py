"""Random faults of processes and links, each with a beginning and an end, drawn from a seed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tests.soak.proxy import Proxy

SERVER, DRIVER = -1, -2
STORM_S, CALM_S = 40.0, 14.0
"""Faults come for so long, then none for so long: what is measured of a process that has settled is measured then."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Attributes:
        seconds: From and to: how long it lasts; 0, 0 for one that is a moment.
        target: ``SERVER`` or ``DRIVER``; None for a worker or its link.
        every: It comes once in so many turns,
        first: beginning with this one.
    """

    seconds: tuple[float, float] = (0.0, 0.0)
    target: int | None = None
    every: int = 1
    first: int = 0


KINDS: Mapping[str, Kind] = {
    "kill worker": Kind(),
    "stop worker": Kind((0.5, 3.0)),
    "stop worker until it is given up": Kind((10.0, 12.0)),
    "kill server": Kind(target=SERVER, every=2),
    "stop server": Kind((0.5, 3.0), target=SERVER),
    "kill driver": Kind(target=DRIVER, every=3, first=1),
    "cut link": Kind(),
    "link down": Kind((1.0, 6.0)),
    "half-open link": Kind((1.0, 5.0)),
    "slow link": Kind((2.0, 6.0)),
    "late link": Kind((2.0, 6.0)),
    "link held back": Kind((0.5, 3.0)),
    "flip a bit": Kind(),
    "drop a piece": Kind(),
    "repeat a piece": Kind(),
    "strangers": Kind((1.0, 3.0), target=SERVER),
}
DAMAGE = {"flip a bit": "flip", "drop a piece": "drop", "repeat a piece": "twice"}
N_STRANGERS = 150
SLOW_BYTES_PER_S, LATE_S = 2e6, 0.05


@dataclass(frozen=True)
class Fault:
    """One fault of the schedule.

    Attributes:
        at_s: After the first step of the run.
        kind: Of ``KINDS``.
        worker: Whom it hits; ``SERVER``, ``DRIVER``.
        seconds: How long it lasts.
        seed: For what it draws itself.
    """

    at_s: float
    kind: str
    worker: int
    seconds: float
    seed: int


def draw_faults(
    seed: int, n_workers: int, *, gap_s: float = 2.5, storm_s: float = STORM_S, turn: int = 0
) -> Iterator[Fault]:
    """Yield faults without end, in order of time: each kind once, in random order, then each once again.

    Server and driver are killed less often: some lives must be long enough to measure. The first turn says how soon.
    """
    drawn = random.Random(seed)
    at_s = 0.0
    for number in itertools.count(turn):
        kinds = [name for name, kind in KINDS.items() if number % kind.every == kind.first]
        drawn.shuffle(kinds)
        for name in kinds:
            kind = KINDS[name]
            at_s += drawn.uniform(0.4, 1.6) * gap_s
            if at_s % (storm_s + CALM_S) > storm_s:
                at_s += storm_s + CALM_S - at_s % (storm_s + CALM_S)
            worker = drawn.randrange(n_workers) if kind.target is None else kind.target
            seconds = round(drawn.uniform(*kind.seconds), 2)
            yield Fault(round(at_s, 2), name, worker, seconds, drawn.randrange(2**31))


@dataclass
class InjectedFault:
    """A fault that the run got, and the times of the recovery.

    Attributes:
        fault: The fault of the schedule.
        begun, ended: Seconds, ``time.monotonic``.
        worker_s: From the end of the fault to the next exchange of the worker that it hit; None for the server's.
        clock_s: From the end of the fault, to the next step that the server counts.
        stall_s: Longest time from the begin of the fault to that step in which no step was counted.
    """

    fault: Fault
    begun: float
    ended: float = 0.0
    worker_s: float | None = None
    clock_s: float | None = None
    stall_s: float = 0.0


class Injector:
    """Does a schedule's faults to a run, from ``start`` to ``stop``; skips a fault whose target is busy.

    Attributes:
        injected: What was done, in order of beginning.
        busy_until: No fault lasts, and none has ended after this, ``time.monotonic``.
    """

    def __init__(
        self,
        schedule: Iterator[Fault],
        *,
        worker_pids: Callable[[], Mapping[int, int]],
        server_pid: Callable[[], int],
        server_address: tuple[str, int],
        proxies: Mapping[int, Proxy],
        kill_driver: Callable[[InjectedFault], bool],
        begun: Callable[[InjectedFault], None],
        ended: Callable[[InjectedFault], None],
    ) -> None:
        self.injected: list[InjectedFault] = []
        self._schedule = schedule
        self._worker_pids = worker_pids
        self._server_pid = server_pid
        self._server_address = server_address
        self._proxies = proxies
        self._kill_driver = kill_driver
        self._begun, self._ended = begun, ended
        self._is_over = threading.Event()
        self._busy: set[int] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="faults")
        self._lasting: list[threading.Thread] = []

    def start(self) -> None:
        """Time begins now."""
        self._thread.start()

    def stop(self) -> None:
        """End every fault that lasts, and do no more."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        for thread in self._lasting:
            thread.join()

    def _run(self) -> None:
        zero = time.monotonic()
        for fault in self._schedule:
            if self._is_over.wait(max(0.0, zero + fault.at_s - time.monotonic())):
                return
            with self._lock:
                if fault.worker in self._busy:
                    continue
                self._busy.add(fault.worker)
            thread = threading.Thread(target=self._do, args=(fault,), name=fault.kind)
            self._lasting.append(thread)
            thread.start()

    def _do(self, fault: Fault) -> None:
        injected = InjectedFault(fault, time.monotonic())
        self._begun(injected)
        try:
            if self._act(injected):
                injected.ended = time.monotonic()
                self.injected.append(injected)
                self._ended(injected)
        finally:
            with self._lock:
                self._busy.discard(fault.worker)

    def _act(self, injected: InjectedFault) -> bool:
        """Do the fault; return whether a target was there."""
        fault = injected.fault
        if fault.worker == DRIVER:
            return self._kill_driver(injected)
        if fault.kind == "strangers":
            return self._strangers(fault)
        if fault.kind.endswith(("server", "worker", "given up")):
            return self._signal(fault)
        return self._disturb(self._proxies[fault.worker], fault)

    def _signal(self, fault: Fault) -> bool:
        pid = self._server_pid() if fault.worker == SERVER else self._worker_pids().get(fault.worker)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            if fault.kind.startswith("kill"):
                os.kill(pid, signal.SIGKILL)
                return True
            os.kill(pid, signal.SIGSTOP)
            try:
                self._is_over.wait(fault.seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
            return True
        return False

    def _disturb(self, proxy: Proxy, fault: Fault) -> bool:
        condition = proxy.condition
        if fault.kind in DAMAGE:
            proxy.damage(DAMAGE[fault.kind], fault.seed)
            return True
        if fault.kind in ("cut link", "link down"):
            condition.is_down = fault.kind == "link down"
            proxy.cut()
        condition.is_half_open = fault.kind == "half-open link"
        condition.is_held = fault.kind == "link held back"
        condition.bytes_per_s = SLOW_BYTES_PER_S if fault.kind == "slow link" else 0.0
        condition.delay_s = LATE_S if fault.kind == "late link" else 0.0
        self._is_over.wait(fault.seconds)
        condition.is_down = condition.is_half_open = condition.is_held = False
        condition.bytes_per_s = condition.delay_s = 0.0
        return True

    def _strangers(self, fault: Fault) -> bool:
        """Connect, say little or nothing, and stay."""
        drawn = random.Random(fault.seed)
        held = []
        for _ in range(N_STRANGERS):
            with suppress(OSError):
                sock = socket.create_connection(self._server_address, 1.0)
                held.append(sock)
                if drawn.random() < 0.3:
                    sock.sendall(drawn.randbytes(drawn.randrange(1, 400)))
        self._is_over.wait(fault.seconds)
        for sock in held:
            sock.close()
        return True
