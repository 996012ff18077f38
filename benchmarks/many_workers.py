"""Measure the exchange server with scripted workers over loopback: grants, joins and memory. See ``scaling.py``.

Once a second a worker takes a grant of one minibatch and returns the grant, by the links of real workers. No net
computes. Vectors move only with ``exchanges``. The workers of a process share a few threads in turns. Each worker has a
fixed moment in each second, so a slow server gets the same number of requests. On a machine without idle cores the
latencies include the waits of these threads for a core. The server's processor time of a round does not include them.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import numpy as np

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Grant, Schedule
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import Vector

SPAWN = multiprocessing.get_context("spawn")
N_PARAMS = 10_000
START_LIMIT_S = 300.0
"""Longest wait for processes of a benchmark to start or end, seconds."""


@dataclass(frozen=True)
class ManyWorkers:
    """Figures of a measurement.

    Attributes:
        n_workers: Connected workers.
        protection: Protection of the connections.
        n_params: Floats that a round pushes and pulls; 0: grants alone.
        joins_per_s: New workers per second: connection, handshake, description, join.
        server_ms_per_join: The server's processor time of a join. The worker's part takes another core.
        grants_per_s: Grants that workers took and returned.
        grant_p50_ms: From the request to the answer, median.
        grant_p99_ms: Likewise, 99th percentile.
        round_p99_ms: From a worker's due moment until the worker has a new grant, 99th percentile. The time includes
            waits of this script for a core.
        server_kib_per_worker: Growth of the server's resident memory per worker.
        server_cpu_share: Share of a core during the grants.
        server_us_per_round: The server's processor time of an acknowledgement, a grant and, with ``n_params``, an
            exchange. The inverse is the largest number of rounds a second of a server with a core.
        lost_grants: Grants that the clock never counted, or that two workers had.
    """

    n_workers: int
    protection: str
    n_params: int
    joins_per_s: float
    server_ms_per_join: float
    grants_per_s: float
    grant_p50_ms: float
    grant_p99_ms: float
    round_p99_ms: float
    server_kib_per_worker: float
    server_cpu_share: float
    server_us_per_round: float
    lost_grants: int


def many_workers(
    n_workers: int,
    seconds: float,
    *,
    protection: Protection = "off",
    exchanges: int = 0,
    n_processes: int = 2,
    n_threads: int = 16,
) -> ManyWorkers:
    """Measure ``n_workers`` for some seconds.

    Args:
        n_workers: Connected workers.
        seconds: Rounds of each worker.
        protection: Protection of the connections.
        exchanges: Length of the vector that a round exchanges; 0: none.
        n_processes: Processes for the workers.
        n_threads: Threads of a process.
    """
    n_params = exchanges or N_PARAMS
    with tempfile.TemporaryDirectory() as folder:
        settings = ExchangeSettings(
            run_id=1,
            n_params=n_params,
            n_workers=n_workers,
            schedule=Schedule(10**9),
            work=Path(folder) / "work",
            events=Path(folder) / "events.jsonl",
            transport="socket",
        )
        with start_exchange(settings, np.zeros(n_params, np.float32), protection=protection) as running:
            kib_before, cpu_before = _resident_kib(running.pid), _cpu_s(running.pid)
            shares = [range(first, n_workers, n_processes) for first in range(n_processes)]
            answers = SPAWN.SimpleQueue()
            go = SPAWN.Event()
            does_exchange = exchanges > 0
            arguments = [(running.address, share, n_threads, seconds, does_exchange, go, answers) for share in shares]
            processes = [SPAWN.Process(target=_work, args=process_arguments) for process_arguments in arguments]
            for process in processes:
                process.start()
            joined = [answers.get() for _ in processes]
            join_cpu = (_cpu_s(running.pid) - cpu_before) / n_workers
            kib = (_resident_kib(running.pid) - kib_before) / n_workers
            assert len(running.poll().live_workers) == n_workers
            began, cpu = time.monotonic(), _cpu_s(running.pid)
            go.set()
            rounds = [each for _ in processes for each in answers.get()]
            took, cpu = time.monotonic() - began, _cpu_s(running.pid) - cpu
            for process in processes:
                process.join(START_LIMIT_S)
            status = running.poll()
        grant_ms = [1000 * answered for _, answered, _ in rounds]
        starts = [start for start, _, _ in rounds]
        lost = len(starts) - len(set(starts)) + abs(len(starts) - status.acknowledged) + status.reissued_grants
        spans = [end for _, end in joined], [begin for begin, _ in joined]
        return ManyWorkers(
            n_workers,
            protection,
            exchanges,
            round(n_workers / (max(spans[0]) - min(spans[1])), 1),
            round(1e3 * join_cpu, 2),
            round(len(rounds) / took, 1),
            round(statistics.median(grant_ms), 2),
            round(_percentile(grant_ms, 99), 2),
            round(_percentile([1000 * round_s for _, _, round_s in rounds], 99), 2),
            round(kib, 1),
            round(cpu / took, 3),
            round(1e6 * cpu / len(rounds), 1),
            lost,
        )


def _work(
    address: ExchangeAddress,
    workers: Sequence[int],
    n_threads: int,
    seconds: float,
    does_exchange: bool,
    go: object,
    answers: SimpleQueue,
) -> None:
    """Join as some workers, say when, and work once told to; answers with each grant's step and seconds."""
    links = {worker: connect(address) for worker in workers}
    with ThreadPoolExecutor(n_threads) as threads:
        began = time.monotonic()
        list(threads.map(lambda worker: links[worker].join(worker), workers))
        answers.put((began, time.monotonic()))
        vectors = {worker: links[worker].pull() for worker in workers if does_exchange}
        go.wait(START_LIMIT_S)  # type: ignore[attr-defined]
        start = time.monotonic()
        shares = [list(workers)[first::n_threads] for first in range(n_threads)]
        results = list(
            threads.map(lambda share: _rounds({w: links[w] for w in share}, vectors, start, seconds), shares)
        )
        answers.put([each for share in results for each in share])
        list(threads.map(lambda link: (link.leave(), link.close()), links.values()))


def _rounds(
    links: dict[int, WorkerLink], vectors: dict[int, Vector], start: float, seconds: float
) -> list[tuple[int, float, float]]:
    """Return a grant and take the next once a second for each worker; return step and seconds of each round."""
    rounds = []
    held: dict[int, Grant] = {}
    for second in range(int(seconds)):
        for index, (worker, link) in enumerate(links.items()):
            due = start + second + index / len(links)
            time.sleep(max(0.0, due - time.monotonic()))
            acknowledged = [held.pop(worker)] if worker in held else []
            if worker in vectors and acknowledged:
                vectors[worker], _ = link.exchange(vectors[worker])
            request_time = time.monotonic()
            grant = link.request_grant(1, done=acknowledged)
            now = time.monotonic()
            assert isinstance(grant, Grant)
            held[worker] = grant
            rounds.append((grant.start, now - request_time, now - due))
    for worker, grant in held.items():
        assert links[worker].acknowledge(grant)
    return rounds


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


def _resident_kib(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in fields if line.startswith("VmRSS:"))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
