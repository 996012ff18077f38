"""Measure a snapshot of many workers: seconds to gather and to write, and the driver's memory. See ``scaling.py``.

The driver's parts are real: the prepared run, the exchange server and the writer of snapshots. The workers are
scripted: a worker takes grants, exchanges, and sends a solver history if a grant asks for the state. No net computes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from many_workers import SPAWN, START_LIMIT_S

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.state.grants import Grant
from deepspark_ops.exchange.state.messages import TakeSnapshot
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import Vector
from deepspark_ops.train.driver.training import snapshot_writer
from deepspark_ops.train.setup.run import PreparedRun
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start
from deepspark_ops.train.snapshots.worker_state import WorkerState

POLL_S = 0.02
PAUSE_S = 0.2
"""Between two grants of a worker."""


@dataclass(frozen=True)
class LargeSnapshot:
    """Figures of a snapshot.

    Attributes:
        n_workers: Workers whose states are in the snapshot.
        n_params: Parameters of the net.
        states_mib: All workers' states, as sent.
        gather_s: From the driver's request until the server has all parts; workers go on.
        assemble_s: Time in which the driver writes Caffe's files and the run's state file.
        assemble_cpu_s: Processor time of ``assemble_s``; the remainder is the disk.
        driver_mib: The driver's resident memory before the snapshot: numpy, the net's layout, the mapped center.
        driver_added_mib: Growth of the driver's peak while the driver writes.
        server_added_mib: Growth of the server's peak while the server gathers.
        state_file_mib: The run's state file.
    """

    n_workers: int
    n_params: int
    states_mib: float
    gather_s: float
    assemble_s: float
    assemble_cpu_s: float
    driver_mib: float
    driver_added_mib: float
    server_added_mib: float
    state_file_mib: float


def large_snapshot(
    prepared: PreparedRun, n_workers: int, *, n_processes: int = 2, n_threads: int = 16
) -> LargeSnapshot:
    """Take a snapshot of a prepared run of ``n_workers``, as the run's driver."""
    run, start = prepared.run, plan_start(prepared.run)
    writer = snapshot_writer(run, start)
    with start_exchange(exchange_settings(prepared, start), start.center) as running:
        shares = [range(first, n_workers, n_processes) for first in range(n_processes)]
        over = SPAWN.Event()
        processes = [
            SPAWN.Process(target=_work, args=(running.address, share, n_threads, over), daemon=True) for share in shares
        ]
        for process in processes:
            process.start()
        try:
            _wait(lambda: min(running.poll().exchanges) > 0, "an exchange of each worker")
            server = Memory(running.pid)
            requested_at = time.monotonic()
            iteration = _gathered(running)
            gather_s = time.monotonic() - requested_at
            server_added = server.added_mib()
            driver = Memory()
            began, cpu = time.monotonic(), time.process_time()
            snapshot = writer.assemble(iteration)
            assemble_s, assemble_cpu_s = time.monotonic() - began, time.process_time() - cpu
            driver_added = driver.added_mib()
        finally:
            over.set()
            for process in processes:
                process.join(START_LIMIT_S)
    n_params = len(start.center)
    return LargeSnapshot(
        n_workers,
        n_params,
        round(n_workers * 4 * n_params / 2**20, 1),
        round(gather_s, 2),
        round(assemble_s, 2),
        round(assemble_cpu_s, 2),
        round(driver.before_mib, 1),
        round(driver_added, 1),
        round(server_added, 1),
        round(snapshot.state.stat().st_size / 2**20, 1),
    )


class Memory:
    """The resident memory of a process, and the peak since now."""

    def __init__(self, pid: int | str = "self") -> None:
        """Begin a new peak."""
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")
        self.before_mib = self._mib("VmRSS")

    def added_mib(self) -> float:
        """Return by how much the peak exceeds the memory at the beginning."""
        return self._mib("VmHWM") - self.before_mib

    def _mib(self, field: str) -> float:
        lines = (self._folder / "status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def _gathered(running: RunningExchange) -> int:
    """Request a snapshot; return the snapshot's iteration when all parts have arrived."""
    running.control(TakeSnapshot())
    _wait(lambda: bool(running.poll().snapshots), "the parts of the snapshot")
    return running.poll().snapshots[-1]


def _wait(is_so: Any, event: str) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while not is_so():
        if time.monotonic() > limit:
            msg = f"waited {START_LIMIT_S:g} s for {event}"
            raise SystemExit(msg)
        time.sleep(POLL_S)


def _work(address: ExchangeAddress, workers: Sequence[int], n_threads: int, over: Any) -> None:
    """Train as some workers, without arithmetic, until the parent sends the end."""
    links = {worker: connect(address) for worker in workers}
    shares = [list(workers)[first::n_threads] for first in range(n_threads)]
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(lambda share: _train({worker: links[worker] for worker in share}, over), shares))


def _train(links: dict[int, WorkerLink], over: Any) -> None:
    vectors: dict[int, Vector] = {}
    held: dict[int, Grant] = {}
    for worker, link in links.items():
        link.join(worker)
        vectors[worker] = link.pull()
    while not over.is_set():
        for worker, link in links.items():
            if worker in held:
                vectors[worker], _ = link.exchange(vectors[worker] + np.float32(1e-3))
            grant = link.request_grant(1, done=[held.pop(worker)] if worker in held else [])
            if isinstance(grant, Grant):
                if grant.state_for:
                    meta, arrays = WorkerState(vectors[worker][np.newaxis]).to_parts()
                    link.send_state(grant.state_for, meta, arrays)
                held[worker] = grant
        over.wait(PAUSE_S)
    for link in links.values():
        link.leave()
        link.close()
