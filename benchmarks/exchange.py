"""Compare the cost of an exchange with the machine's rates: ``python benchmarks/exchange.py [--json] [--quick]``.

``shm``: the exchange in shared memory beside a chunked elastic update in numpy. The update has the same chunk size and
number of processes, and uses the memory of the run's center and of the worker's vectors. On other vectors the same
update is up to a tenth faster or slower, because the position of the pages decides the cost of caches and translation.
``private_ratio`` compares with the same update on private arrays of each process. Private arrays need no cache lines
of another process and get huge pages; ``/dev/shm`` has huge pages if mounted with ``huge``.

``socket``: (bytes up + bytes down) / time, beside the raw one-way rate of a loopback connection. ``tls``: the encrypted
exchange beside a plain loop over the standard library's ``ssl`` sockets with the same cipher, one way. ``mac``: beside
the raw one-way rate without encryption, because no other program computes the same.

All are interleaved, with a core per process; medians of 5 rounds. Further figures are the server's memory, the time to
start, and the time of a control call. ``mixing``: processor time of mixing the center's velocity into the momentum, as
a share of the processor time of the exchange before. Mixing and exchanges take turns in a process.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np

from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.channel.tls import client_context, server_context, wrap
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.listening.certificate import make_certificate
from deepspark_ops.param_vector import CHUNK_FLOATS, Vector, chunk_ranges
from deepspark_ops.train.worker.rates.stabiliser import StabilisedModel, Stabiliser, StabiliserPlan

SIZES = {"lenet": 431_080, "seven_million": 7_000_000, "caffenet": 60_965_224}
MIXED_SIZES = (SIZES["lenet"], 20_000_000, SIZES["caffenet"])
ROUNDS = 5
ROUND_S = 0.4
SLICES = 8
MOVING_RATE = np.float32(0.45)
CORES = sorted(os.sched_getaffinity(0))
MIXING_ROUNDS = 31
TRANSPORTS = ("shm", "socket", "tls", "mac")
LAST = b"\1"
"""Byte that ends a block of zeros on a raw connection."""
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Row:
    """A comparison: ``exchange`` and ``yardstick`` are rates in bytes/s, ``ratio`` is the median of their quotients."""

    transport: str
    n_params: int
    n_workers: int
    exchange: float
    yardstick: float
    ratio: float
    private_ratio: float | None
    rounds: list[float]
    median_ms: float
    p99_ms: float


def elastic_update(local: Vector, center: Vector, new_local: Vector, push: Vector, chunk: int) -> None:
    """The yardstick: the same arithmetic in plain numpy on arrays of this process."""
    for start, stop in chunk_ranges(len(local), chunk):
        local_chunk, center_chunk, elastic_diff = local[start:stop], center[start:stop], push[: stop - start]
        np.subtract(local_chunk, center_chunk, out=elastic_diff)
        np.multiply(elastic_diff, MOVING_RATE, out=elastic_diff)
        np.subtract(local_chunk, elastic_diff, out=new_local[start:stop])
        np.add(center_chunk, elastic_diff, out=center_chunk)


def worker_process(
    pipe: Connection, address: ExchangeAddress, worker: int, core: int, chunk: int, center_path: Path
) -> None:
    """Join, then time the parent's actions until the request ``stop``; send an answer per request."""
    os.sched_setaffinity(0, {core})
    link = connect(address)
    n_params = link.join(worker).n_params
    local = link.pull()
    private_local, private_spare, private_center = (aligned_vector(n_params) for _ in range(3))
    push = aligned_vector(chunk)
    private_local[:], private_spare[:], private_center[:] = local, 0.0, local[::-1]
    private_locals = [private_local, private_spare]
    lent: list[Vector] = []
    center = Center.open(center_path)
    # As the exchange does: workers begin at different places of the vector.
    first = worker * n_params // 2 // chunk * chunk

    latencies: list[float] = []

    def exchange() -> None:
        nonlocal local
        local, report = link.exchange(local)
        latencies.append(report.seconds)

    def private() -> None:
        elastic_update(private_locals[0], private_center, private_locals[1], push, chunk)
        private_locals.reverse()

    def yardstick() -> None:
        old, new = lent
        elastic_update(old[first:], center.vector[first:], new[first:], push, chunk)
        elastic_update(old[:first], center.vector[:first], new[:first], push, chunk)
        lent.reverse()

    actions: dict[str, Callable[[], object]] = {
        "exchange": exchange,
        "yardstick": yardstick,
        "private": private,
        "control": link.heartbeat,
    }
    exchange()
    exchange()
    pipe.send("ready")
    latencies.clear()
    while (request := pipe.recv()) != "stop":
        name, seconds = request
        if name == "yardstick":  # on the two vectors of the exchanges, until the end of this request
            older = local
            local, _ = link.exchange(local)
            lent += [local, older]
            del older
        pipe.send(latencies if name == "latencies" else rate(actions[name], seconds))
        lent.clear()
    link.leave()
    link.close()


def rate(action: Callable[[], object], seconds: float) -> float:
    """Return the calls of ``action`` per second, over at least ``seconds`` and one call.

    Untimed calls come first, for an eighth of the time: an earlier action may have left other vectors in the caches.
    """
    calls_within(action, seconds / 8)
    n_calls, passed = calls_within(action, seconds)
    return n_calls / passed


def calls_within(action: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call ``action`` until ``seconds`` are over, but at least once; return the number of calls and the seconds."""
    n_calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds or not n_calls:
        action()
        n_calls += 1
    return n_calls, passed


def raw_sender(pipe: Connection, address: tuple[str, int], core: int, chunk: int, pem: bytes) -> None:
    """Send chunks at full speed, for the seconds of each request of the parent."""
    os.sched_setaffinity(0, {core})
    data = memoryview(bytes(4 * chunk))
    with encrypted(socket.create_connection(address), client_context() if pem else None, is_server=False) as sock:
        pipe.send("ready")
        while (seconds := pipe.recv()) != "stop":
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                sock.sendall(data)
            sock.sendall(LAST)
            pipe.send("sent")


def encrypted(sock: socket.socket, context: ssl.SSLContext | None, *, is_server: bool) -> socket.socket:
    """Return the plain connection, or a TLS connection after the handshake."""
    if context is None:
        return sock
    wrapped = wrap(sock, context, is_server=is_server)
    wrapped.do_handshake()
    return wrapped


def raw_receiver(pipe: Connection, address_pipe: Connection, core: int, chunk: int, pem: bytes) -> None:
    """Receive for as long as the parent asks and answer with bytes per second."""
    os.sched_setaffinity(0, {core})
    buffer = memoryview(bytearray(4 * chunk))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address_pipe.send(listener.getsockname())
        accepted, _ = listener.accept()
        with encrypted(accepted, server_context(pem) if pem else None, is_server=True) as sock:
            pipe.send("ready")
            while pipe.recv() != "stop":
                received, first, is_over = 0, 0.0, False
                while not is_over:
                    got = sock.recv_into(buffer)
                    first = first or time.perf_counter()
                    received += got
                    is_over = not got or buffer[got - 1] == LAST[0]
                pipe.send(received / max(time.perf_counter() - first, 1e-9))


class Crew:
    """Child processes, each with a pipe; all get the same requests."""

    def __init__(self, targets: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
        """Start the processes."""
        self.pipes: list[Connection] = []
        self.processes = []
        for target, args in targets:
            parent_end, child_end = SPAWN.Pipe()
            process = SPAWN.Process(target=target, args=(child_end, *args), daemon=True)
            process.start()
            self.pipes.append(parent_end)
            self.processes.append(process)

    def wait_ready(self) -> None:
        """Wait for the first message of each."""
        for pipe in self.pipes:
            pipe.recv()

    def ask(self, request: Any) -> list[Any]:
        """Send a request to all processes and return their answers."""
        for pipe in self.pipes:
            pipe.send(request)
        return [pipe.recv() for pipe in self.pipes]

    def stop(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.send("stop")
        for process in self.processes:
            process.join(10)


class RawLoopback:
    """A one-way connection between two pinned processes."""

    def __init__(self, chunk: int, *, is_encrypted: bool) -> None:
        """Start both processes and connect them."""
        parent_end, child_end = SPAWN.Pipe()
        pem = make_certificate().pem if is_encrypted else b""
        self._receiver = Crew([(raw_receiver, (child_end, CORES[-1], chunk, pem))])
        self._sender = Crew([(raw_sender, (parent_end.recv(), CORES[0], chunk, pem))])
        self._receiver.wait_ready()
        self._sender.wait_ready()

    def rate(self, seconds: float) -> float:
        """Return bytes per second."""
        self._receiver.pipes[0].send(seconds)
        self._sender.ask(seconds)
        return float(self._receiver.pipes[0].recv())

    def stop(self) -> None:
        """End both processes."""
        self._sender.stop()
        self._receiver.stop()


def pin(pid: int, cores: set[int]) -> None:
    """Pin every thread of a process."""
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), cores)


def settings_for(folder: Path, n_params: int, chunk: int, transport: str) -> ExchangeSettings:
    """Return settings for two workers; a single active process then computes the elastic update, too."""
    return ExchangeSettings(
        run_id=1,
        n_params=n_params,
        n_workers=2,
        schedule=Schedule(1),
        work=folder / "work",
        events=folder / "events.jsonl",
        moving_rate=float(MOVING_RATE),
        chunk=chunk,
        transport="shm" if transport == "shm" else "socket",
    )


def compare(transport: str, n_params: int, n_workers: int, chunk: int, seconds: float) -> tuple[Row, dict[str, Any]]:
    """Time a case; return the row, and the figures of the server."""
    initial = np.random.default_rng(0).standard_normal(n_params, np.float32)
    raw = None if transport == "shm" else RawLoopback(chunk, is_encrypted=transport == "tls")
    protection: Protection = transport if transport in ("mac", "tls") else "off"  # type: ignore[assignment]
    with (
        tempfile.TemporaryDirectory() as folder,
        start_exchange(
            settings_for(Path(folder), n_params, chunk, transport), initial, protection=protection
        ) as running,
    ):
        # Three processes share two cores, so the server may use both.
        pin(running.pid, {CORES[0]} if n_workers == 1 else set(CORES))
        center = running.center.path
        cores = [CORES[-1 - i % len(CORES)] for i in range(n_workers)]
        crew = Crew([(worker_process, (running.address, i, core, chunk, center)) for i, core in enumerate(cores)])
        crew.wait_ready()
        rounds = [measure_round(crew, raw, n_params, seconds) for _ in range(ROUNDS)]
        control_us = 1e6 / crew.ask(("control", 0.1))[0]
        latencies_ms = 1e3 * np.concatenate(crew.ask(("latencies", 0.0)))
        server = server_figures(running, n_params) | {"control_call_us": round(control_us, 1)}
        crew.stop()
    if raw is not None:
        raw.stop()
    ratios = [bytes_per_s["exchange"] / bytes_per_s["yardstick"] for bytes_per_s in rounds]
    privates = [bytes_per_s["exchange"] / bytes_per_s["private"] for bytes_per_s in rounds if "private" in bytes_per_s]
    row = Row(
        transport,
        n_params,
        n_workers,
        statistics.median(bytes_per_s["exchange"] for bytes_per_s in rounds),
        statistics.median(bytes_per_s["yardstick"] for bytes_per_s in rounds),
        round(statistics.median(ratios), 3),
        round(statistics.median(privates), 3) if privates else None,
        [round(r, 3) for r in ratios],
        round(float(np.percentile(latencies_ms, 50)), 3),
        round(float(np.percentile(latencies_ms, 99)), 3),
    )
    return row, server


def measure_round(crew: Crew, raw: RawLoopback | None, n_params: int, seconds: float) -> dict[str, float]:
    """Return bytes/s of each action from short slices in turn: other programs then disturb all actions alike."""
    names = ("exchange", "yardstick", "private") if raw is None else ("exchange", "yardstick")
    bytes_per_s = dict.fromkeys(names, 0.0)
    for _ in range(SLICES):
        for name in names:
            if name == "yardstick" and raw is not None:
                bytes_per_s[name] += raw.rate(seconds / SLICES) / SLICES
            else:
                bytes_per_s[name] += 8.0 * n_params * sum(crew.ask((name, seconds / SLICES))) / SLICES
    return bytes_per_s


def server_figures(running: RunningExchange, n_params: int) -> dict[str, Any]:
    """Return the server's memory and the limit."""
    status = Path(f"/proc/{running.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    resident = int(fields["VmHWM"].split()[0]) * 1024
    return {"server_bytes": resident, "server_bytes_limit": 4 * n_params + (64 << 20)}


class KeptMomentum:
    """A model with momentum alone."""

    def __init__(self, n_params: int) -> None:
        """Begin with the same momentum everywhere."""
        self.history = np.full(n_params, 0.5, np.float32)

    def momentum(self) -> list[Vector]:
        """See ``StabilisedModel``."""
        return [self.history]

    def replace_momentum(self, momentum: Sequence[Vector]) -> None:
        """See ``StabilisedModel``."""
        (self.history,) = momentum


def mixing_process(pipe: Connection, address: ExchangeAddress) -> None:
    """Join as worker 0, exchange and mix in turns; send the medians of the ratio and of both processor times, in ms."""
    link = connect(address)
    n_params = link.join(0).n_params
    link.report_center()
    local, model = link.pull(), KeptMomentum(n_params)
    plan = StabiliserPlan(n_workers=2, momentum_from_center=0.5)
    stabiliser = Stabiliser(plan, cast(StabilisedModel, model), lambda clock: 0.1, lambda clock: 0.1)
    times = []
    for number in range(MIXING_ROUNDS):
        started = time.process_time()
        local, report = link.exchange(local)
        exchanged = time.process_time()
        assert report.center is not None, "report_center was called"
        stabiliser.after_exchange(report.center, 2 * number + 2, 1)
        if number:
            times.append((time.process_time() - exchanged, exchanged - started))
        del report
    mixing, exchange = np.array(times[len(times) // 3 :]).T
    pipe.send((float(np.median(mixing / exchange)), 1e3 * float(np.median(mixing)), 1e3 * float(np.median(exchange))))
    link.leave()
    link.close()


def mixing(n_params: int) -> dict[str, float]:
    """Return the ratio and the times of ``mixing_process`` in shared memory."""
    initial = np.random.default_rng(0).standard_normal(n_params, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_for(Path(folder), n_params, CHUNK_FLOATS, "shm")
        with start_exchange(settings, initial) as running:
            crew = Crew([(mixing_process, (running.address,))])
            ratio, mixing_ms, exchange_ms = crew.pipes[0].recv()
            crew.processes[0].join(10)
    return {"ratio": round(ratio, 3), "mixing_ms": round(mixing_ms, 3), "exchange_ms": round(exchange_ms, 3)}


def start_seconds() -> float:
    """Return the median time from the start of a server to the first answer."""
    seconds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            with start_exchange(settings_for(Path(folder), 1_000, CHUNK_FLOATS, "auto"), np.zeros(1_000, np.float32)):
                seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def main() -> None:
    """Run every case and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="only 0.4 and 7 million parameters, short rounds")
    parser.add_argument("--chunks", action="store_true", help="compare chunk sizes of the yardstick and end")
    parser.add_argument("--only", choices=(*TRANSPORTS, "mixing"), help="only one transport, or mixing")
    arguments = parser.parse_args()
    if arguments.chunks:
        compare_chunks()
        return
    mixed = {}
    if arguments.only in (None, "mixing"):
        mixed = {n_params: mixing(n_params) for n_params in MIXED_SIZES}
    if arguments.only == "mixing":
        json.dump(mixed, sys.stdout, indent=2)
        print()
        return
    sizes = [n for n in SIZES.values() if not (arguments.quick and n > 10_000_000)]
    seconds = ROUND_S / 4 if arguments.quick else ROUND_S
    rows, server = [], []
    for transport in TRANSPORTS:
        if arguments.only not in (None, transport):
            continue
        for n_params in sizes:
            for n_workers in (1, 2) if transport in ("shm", "socket") else (1,):
                row, server_row = compare(transport, n_params, n_workers, CHUNK_FLOATS, seconds)
                rows.append(row)
                server.append(server_row)
                if not arguments.json:
                    print(
                        f"{transport:6} {n_params:>10,} floats, {n_workers} workers: {row.exchange / 1e9:6.2f} GB/s of"
                        f" {row.yardstick / 1e9:6.2f} GB/s = {row.ratio:.3f}"
                        f" (private: {row.private_ratio})  {row.rounds}"
                        f"  exchange median {row.median_ms:.2f} ms, p99 {row.p99_ms:.2f} ms",
                        flush=True,
                    )
    result = summary(rows, server) | {"mixing": mixed}
    if arguments.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        print({key: value for key, value in result.items() if key != "rows"})


def summary(rows: list[Row], server: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that have bars."""

    def least(transport: str, n_workers: int) -> float | None:
        return min((r.ratio for r in rows if (r.transport, r.n_workers) == (transport, n_workers)), default=None)

    figures = {f"{transport}_ratio_{n}_workers": least(transport, n) for transport in ("shm", "socket") for n in (1, 2)}
    by_transport = {
        f"{transport}_ratio_min": min((r.ratio for r in rows if r.transport == transport), default=None)
        for transport in ("shm", "socket")
    }
    protected = {f"{name}_ratio": least(name, 1) for name in ("tls", "mac")}
    return {
        **by_transport,
        **protected,
        "exchange_p99_ms": {f"{r.transport} {r.n_params} {r.n_workers}": r.p99_ms for r in rows},
        "shm_private_ratio_min": min((r.private_ratio for r in rows if r.private_ratio is not None), default=None),
        **figures,
        "server_spare_bytes": max(s["server_bytes"] - s["server_bytes_limit"] for s in server) + (64 << 20),
        "server_within_limit": all(s["server_bytes"] <= s["server_bytes_limit"] for s in server),
        "server_start_s": round(start_seconds(), 3),
        "control_call_us": statistics.median(s["control_call_us"] for s in server),
        "chunk_floats": CHUNK_FLOATS,
        "rows": [asdict(row) for row in rows],
    }


def compare_chunks() -> None:
    """Print the yardstick's time per chunk size: how ``CHUNK_FLOATS`` was chosen."""
    os.sched_setaffinity(0, {CORES[-1]})
    for n_params in SIZES.values():
        local, center = np.random.default_rng(0).standard_normal((2, n_params), np.float32)
        new_local, push = np.zeros_like(local), np.empty_like(local)
        times: dict[int, list[float]] = {}
        for _ in range(ROUNDS):
            for chunk in (16_384, 32_768, 65_536, 131_072, 262_144, 524_288, n_params):
                update = functools.partial(elastic_update, local, center, new_local, push[:chunk], chunk)
                times.setdefault(chunk, []).append(1e3 / rate(update, 0.05))
        print(f"{n_params:>10,}:", "  ".join(f"{c:,}: {statistics.median(t):.3f} ms" for c, t in times.items()))


if __name__ == "__main__":
    main()
