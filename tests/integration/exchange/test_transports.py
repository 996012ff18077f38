"""The same run through one process, a socket and shared memory: the same bits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.events import read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Grant, Schedule
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import StatisticBlobs, Vector
from tests.processes import wait_until
from tests.reference.slow_easgd import slow_run
from tests.reference.slow_strategies import slow_averaging
from tests.unit.deepspark_ops.exchange.exchange_run import (
    WorkerRun,
    initial_vector,
    make_settings,
    sum_before_and_after,
    update_of,
    work,
)

TRANSPORTS = ("socket", "shm")
WITHOUT_ROUNDS = [name for name in strategy_names() if find_strategy(name).round != "all"]


@pytest.mark.parametrize(
    ("transport", "protection"),
    [("socket", "off"), ("socket", "mac"), ("socket", "tls"), ("shm", "off"), ("shm", "tls")],
)
def test_one_worker_agrees_with_local_and_reference_bit_for_bit(
    tmp_path: Path, transport: str, protection: Protection
) -> None:
    settings = make_settings(tmp_path / transport, n_workers=1, transport=transport)
    with start_exchange(settings, initial_vector(), protection=protection) as running:
        run = work(connect(running.address), 0)
        status = running.wait(60)
        center = running.center.snapshot()
    local_exchange = LocalExchange(make_settings(tmp_path / "local", n_workers=1), initial_vector())
    local_run = work(local_exchange.link(), 0)
    steps = [(0, update_of(step).tolist()) for step in range(40)]
    reference, reference_center = slow_run(initial_vector().tolist(), steps, 1, 0.0)
    np.testing.assert_array_equal(run.local, np.float32(reference[0]))
    np.testing.assert_array_equal(center, np.float32(reference_center))
    np.testing.assert_array_equal(run.local, local_run.local)
    assert run.grants == local_run.grants
    assert {r.transport for r in run.reports} == {transport}
    assert (status.finished, status.acknowledged, status.snapshots) == (True, 40, (20, 40))
    for name in ("center.f32", "worker_0.npz", "worker_0.json", "complete.json"):
        content = (settings.work / "pending" / "iter_20" / name).read_bytes()
        assert content == (tmp_path / "local" / "work" / "pending" / "iter_20" / name).read_bytes()


def play(
    links: list[WorkerLink], order: list[int], n_params: int, transports: Sequence[str] | None = None
) -> list[Vector]:
    """Exchanges in a fixed order, over ``transports`` by worker; returns every worker's parameters."""
    locals_ = []
    for worker, link in enumerate(links):
        link.join(worker)
        locals_.append(link.pull())
    for step, worker in enumerate(order):
        locals_[worker], report = links[worker].exchange(locals_[worker] + update_of(step, n_params))
        assert transports is None or report.transport == transports[worker]
    for link in links:
        link.close()
    return locals_


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_workers_in_a_fixed_order_agree_with_the_reference_bit_for_bit(tmp_path: Path, transport: str) -> None:
    n_params, order = 200, [0, 1, 1, 2, 0, 2, 2, 1, 0, 1, 2, 0]
    settings = make_settings(tmp_path, n_params=n_params, n_workers=3, chunk=33, transport=transport)
    with start_exchange(settings, initial_vector(n_params)) as running:
        locals_ = play([connect(running.address) for _ in range(3)], order, n_params)
        center = running.center.snapshot()
    steps = [(worker, update_of(step, n_params).tolist()) for step, worker in enumerate(order)]
    expected, expected_center = slow_run(initial_vector(n_params).tolist(), steps, 3, settings.alpha())
    for local, reference in zip(locals_, expected, strict=True):
        np.testing.assert_array_equal(local, np.float32(reference))
    np.testing.assert_array_equal(center, np.float32(expected_center))


@pytest.mark.parametrize("n_servers", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("strategy", WITHOUT_ROUNDS)
def test_every_strategy_agrees_with_local_bit_for_bit_over_both_transports_at_once(
    tmp_path: Path, n_servers: int, strategy: str
) -> None:
    order, transports = [0, 1, 1, 2, 0, 2, 2, 1, 0, 1, 2, 0], ("socket", "shm", "socket")
    fields = {"n_params": 200, "n_workers": 3, "chunk": 33, "strategy": strategy}
    settings = make_settings(tmp_path / "s", transport="auto", n_servers=n_servers, **fields)
    with start_exchange(settings, initial_vector(200)) as running:
        links = [connect(replace(running.address, transport=transport)) for transport in transports]
        locals_ = play(links, order, 200, transports)
        center = running.center.snapshot()
    exchange = LocalExchange(make_settings(tmp_path / "l", **fields), initial_vector(200))
    np.testing.assert_array_equal(locals_, play([exchange.link() for _ in range(3)], order, 200))
    np.testing.assert_array_equal(center, exchange.center.vector)


@pytest.mark.parametrize(
    ("transport", "lock", "expected"), [("socket", "none", 0.18), ("socket", "full", 0.3), ("shm", "none", 0.3)]
)
def test_an_exchange_by_socket_beside_two_open_ones_moves_less(
    tmp_path: Path, transport: str, lock: str, expected: float
) -> None:
    settings = make_settings(tmp_path, n_params=40, n_workers=3, moving_rate=0.3, transport=transport, lock=lock)
    with start_exchange(settings, np.zeros(40, np.float32)) as running:
        for other in (1, 2):
            running.center.begin(other)
        link = connect(running.address)
        link.join(0)
        local = link.pull() + np.float32(1.0)
        moved, _ = link.exchange(local)
        link.close()
        center = running.center.snapshot()
    np.testing.assert_allclose(moved, 1.0 - expected, rtol=1e-6)
    np.testing.assert_allclose(center, expected, rtol=1e-6)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_present_workers_decide_what_an_exchange_moves(tmp_path: Path, transport: str) -> None:
    """A run of at most 32: with two workers alpha is 0.45 and the center weighs 1, with eight 0.3 and 2."""
    settings = make_settings(tmp_path, n_params=40, n_workers=32, transport=transport)
    with start_exchange(settings, np.zeros(40, np.float32)) as running:
        links = [connect(running.address) for _ in range(8)]
        moves = []
        for first, last in ((0, 2), (2, 8)):
            for worker in range(first, last):
                links[worker].join(worker)
            old_center = running.center.snapshot()
            grant = links[first].request_grant(1)
            moved, _ = links[first].exchange(links[first].pull() + np.float32(1.0))
            links[first].acknowledge(grant)
            moves.append((float(old_center[0] + 1.0 - moved[0]), float((running.center.snapshot() - old_center)[0])))
        for link in links:
            link.close()
    np.testing.assert_allclose(moves, [(0.45, 0.45), (0.3, 0.15)], rtol=1e-5)


@pytest.mark.parametrize("wire_dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.long)])
@pytest.mark.parametrize("strategy", WITHOUT_ROUNDS)
def test_rounded_pushes_stay_near_the_whole_ones(tmp_path: Path, wire_dtype: str, strategy: str) -> None:
    order = [0, 1, 1, 2, 0, 2, 2, 1, 0, 1, 2, 0]
    fields = {"n_params": 200, "n_workers": 3, "chunk": 33, "strategy": strategy}
    settings = make_settings(tmp_path / "s", transport="socket", wire_dtype=wire_dtype, **fields)
    with start_exchange(settings, initial_vector(200)) as running:
        links = [connect(running.address) for _ in range(3)]
        rounded_locals = play(links, order, 200)
        center = running.center.snapshot()
    exchange = LocalExchange(make_settings(tmp_path / "l", **fields), initial_vector(200))
    expected = play([exchange.link() for _ in range(3)], order, 200)
    # Twelve roundings of pushes of size 3: eleven bits of float16, eight of bfloat16.
    limit = 12 * 3 * (2.0**-11 if wire_dtype == "float16" else 2.0**-8)
    for rounded, other in zip((*rounded_locals, center), (*expected, exchange.center.vector), strict=True):
        np.testing.assert_allclose(rounded, other, rtol=0, atol=limit)
    assert not np.array_equal(center, exchange.center.vector)
    if find_strategy(strategy).has_moving_rate:
        updates = sum(update_of(step, 200).astype(np.float64) for step in range(len(order)))
        held = center.astype(np.float64) + np.sum(rounded_locals, axis=0, dtype=np.float64)
        np.testing.assert_allclose(held, 4 * initial_vector(200).astype(np.float64) + updates, rtol=0, atol=1e-5)


@pytest.mark.parametrize("wire_dtype", ["float16", "bfloat16"])
def test_rounded_pushes_of_eight_workers_keep_the_weighted_sum(tmp_path: Path, wire_dtype: str) -> None:
    """The center weighs two workers."""
    order = [*range(8)] * 5
    settings = make_settings(
        tmp_path, transport="socket", wire_dtype=wire_dtype, n_params=200, n_workers=8, chunk=33, strategy="easgd"
    )
    with start_exchange(settings, initial_vector(200)) as running:
        locals_ = play([connect(running.address) for _ in range(8)], order, 200)
        center = running.center.snapshot()
    updates = sum(update_of(step, 200).astype(np.float64) for step in range(len(order)))
    held = 2 * center.astype(np.float64) + np.sum(locals_, axis=0, dtype=np.float64)
    np.testing.assert_allclose(held, 10 * initial_vector(200).astype(np.float64) + updates, rtol=0, atol=3e-5)


def test_key_ranges_are_served_by_processes_of_their_own(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, n_params=1_000, chunk=300, transport="auto", n_servers=9)
    with start_exchange(settings, initial_vector()) as running:
        # Four chunks are served by no more than four servers; a worker of this host needs none of them.
        assert (len(set(running.pids)), len(running.address.more_ports)) == (4, 3)
        in_memory = connect(running.address)
        by_socket = connect(replace(running.address, transport="socket"))
        locals_ = play([in_memory, by_socket], [0, 1, 1, 0], 1_000)
        center = running.center.snapshot()
        status = running.poll()
    exchange = LocalExchange(make_settings(tmp_path / "l"), initial_vector())
    np.testing.assert_array_equal(locals_, play([exchange.link(), exchange.link()], [0, 1, 1, 0], 1_000))
    np.testing.assert_array_equal(center, exchange.center.vector)
    assert status.exchanges == (2, 2)


def test_one_worker_is_never_rounded(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, n_workers=1, transport="socket", wire_dtype="bfloat16")
    with start_exchange(settings, initial_vector()) as running:
        run = work(connect(running.address), 0)
        center = running.center.snapshot()
    np.testing.assert_array_equal(run.local, center)


@pytest.mark.parametrize(
    ("transport", "n_servers", "options"),
    [("socket", 1, {}), ("socket", 2, {"block_momentum": 0.5}), ("shm", 1, {"block_momentum": 0.5})],
)
def test_rounds_agree_with_the_slow_reference(
    tmp_path: Path, transport: str, n_servers: int, options: dict[str, float]
) -> None:
    n_workers, n_rounds = 3, 4
    settings = make_settings(
        tmp_path,
        n_params=200,
        n_workers=n_workers,
        chunk=33,
        strategy="local_sgd",
        options=options,
        transport=transport,
        n_servers=n_servers,
        schedule=Schedule(n_workers * n_rounds),
    )
    with start_exchange(settings, initial_vector(200)) as running:
        runs = run_workers(running.address, n_workers, want=1)
        center = running.center.snapshot()
    # Each round is one step of each worker, in any order of requests.
    steps = [[update_of(run.grants[r].start, 200).tolist() for run in runs] for r in range(n_rounds)]
    expected = slow_averaging(initial_vector(200).tolist(), steps, options.get("block_momentum", 0.0))
    for vector in (center, *(run.local for run in runs)):
        np.testing.assert_allclose(vector, expected, rtol=1e-5, atol=1e-6)  # float32, order of additions


@pytest.mark.parametrize("lock", ["striped", "full"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_with_locks_no_push_is_lost(tmp_path: Path, transport: str, lock: str) -> None:
    settings = make_settings(
        tmp_path,
        n_params=20_000,
        n_workers=3,
        chunk=4096,
        transport=transport,
        lock=lock,
        schedule=Schedule(60),
        watch_rest_s=0.0,
    )
    with start_exchange(settings, initial_vector(20_000)) as running:
        runs = run_workers(running.address, 3, want=1)
        center = running.center.snapshot()
        status = running.poll()
    held, expected = sum_before_and_after(runs, center, 60)
    np.testing.assert_allclose(held, expected, atol=1e-3)  # float32 rounding of 60 exchanges is 1e-5
    last = [event.data for event in read_events(settings.events) if event.kind == "server"][-1]
    assert last["lost_updates"] == 0.0
    assert 0.0 < abs(last["deviation"]) <= last["rounding"]
    assert last["watched_pushes"] > 0
    assert last["exchanges_per_s"] > 0
    # Each exchange pushes and pulls every parameter, in 4 bytes; by socket the three first pulls are bytes too.
    moved = (sum(status.exchanges) * 2 + (3 if transport == "socket" else 0)) * 4 * 20_000
    assert status.moved_bytes == last["moved_bytes"] == moved


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_round_does_not_wait_for_a_worker_that_is_gone(tmp_path: Path, transport: str) -> None:
    settings = make_settings(
        tmp_path, strategy="local_sgd", transport=transport, schedule=Schedule(12), exchange_timeout_s=2.0
    )
    with start_exchange(settings, initial_vector()) as running:
        crashing = connect(running.address)
        crashing.join(1)
        crashing.pull()
        grant = crashing.request_grant(2)
        crashing.close()
        run = work(connect(running.address), 0, want=2)
        assert running.poll().finished
    assert isinstance(grant, Grant)
    assert sorted(s for g in run.grants for s in range(g.start, g.stop)) == list(range(12))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_statistics_agree_with_local_bit_for_bit(tmp_path: Path, transport: str) -> None:
    statistics = StatisticBlobs.from_json([[10, 60, 60, 110, 110, 0.9], [150, 151, 151, 152, 152, 0.99]])
    order = [0, 1, 0, 0, 1]
    fields = {"n_params": 200, "chunk": 64, "statistics": statistics}
    initial = np.abs(initial_vector(200))
    with start_exchange(make_settings(tmp_path / "s", transport=transport, **fields), initial) as running:
        locals_ = play([connect(running.address) for _ in range(2)], order, 200)
        center = running.center.snapshot()
    exchange = LocalExchange(make_settings(tmp_path / "l", **fields), initial)
    expected = play([exchange.link() for _ in range(2)], order, 200)
    np.testing.assert_array_equal(locals_, expected)
    np.testing.assert_array_equal(center, exchange.center.vector)


@pytest.mark.parametrize("transport", ["auto", *TRANSPORTS])
def test_free_running_workers_keep_the_books_and_the_sum(tmp_path: Path, transport: str) -> None:
    n_params, n_workers = 20_000, 3
    settings = make_settings(
        tmp_path,
        n_params=n_params,
        n_workers=n_workers,
        chunk=4096,
        transport=transport,
        schedule=Schedule(120, 50, snapshot=60),
    )
    with start_exchange(settings, initial_vector(n_params)) as running:
        runs = run_workers(running.address, n_workers)
        status = running.poll()
        center = running.center.snapshot()
    granted = sorted(s for run in runs for g in run.grants for s in range(g.start, g.stop))
    assert granted == list(range(120))
    assert status.finished
    assert sum(status.exchanges) == sum(len(run.reports) for run in runs)
    assert status.snapshots == (60, 120)
    assert sorted(g.start for run in runs for g in run.grants if g.tests) == [0, 50, 100]
    held, expected = sum_before_and_after(runs, center, 120)
    # float32 rounding of 30 exchanges is 1e-5; an update lost to an overlap would be 0.3 of a step, in few elements.
    lost = np.abs(held - expected) > 1e-3
    assert lost.mean() < 0.01
    kinds = [event.kind for event in read_events(tmp_path / "events.jsonl")]
    assert kinds.count("worker_joined") == n_workers
    assert "worker_lost" not in kinds


def run_workers(address: ExchangeAddress, n_workers: int, want: int = 4) -> list[WorkerRun]:
    runs: dict[int, WorkerRun] = {}
    everybody = threading.Barrier(n_workers, timeout=60)

    def target(worker: int) -> None:
        runs[worker] = work(connect(address), worker, want=want, joined=everybody.wait)

    threads = [threading.Thread(target=target, args=(i,)) for i in range(n_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [runs[i] for i in range(n_workers)]


def test_auto_uses_shared_memory_on_the_same_host_and_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        local_link = connect(running.address)
        assert local_link.join(0).transport == "shm"
        local_link.close()
        real_open = os.open

        def other_host(path: str | Path, flags: int, mode: int = 0o777) -> int:
            if str(path) == str(running.center.path):
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return real_open(path, flags, mode)

        monkeypatch.setattr(os, "open", other_host)
        remote_link = connect(running.address)
        assert remote_link.join(1).transport == "socket"
        remote_link.close()


def test_shared_memory_that_is_asked_for_and_cannot_be_had_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(tmp_path, transport="shm")
    with start_exchange(settings, initial_vector()) as running:
        monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
        with pytest.raises(
            ConfigError, match=r"transport=shm: the center cannot be mapped here .*; use transport=auto"
        ):
            connect(running.address).join(0)
        monkeypatch.undo()


def test_distance_over_the_socket_leaves_out_statistics(tmp_path: Path) -> None:
    statistics = StatisticBlobs.from_json([[10, 60, 60, 110, 110, 0.9]])
    settings = make_settings(tmp_path, transport="socket", statistics=statistics)
    with start_exchange(settings, initial_vector()) as running:
        link = connect(running.address)
        link.join(0)
        _, report = link.exchange(link.pull() + np.float32(2.0), measure_distance=True)
        assert report.distance == pytest.approx(2.0 * 899**0.5, rel=1e-6)
        link.close()


@pytest.mark.parametrize("transport", ["shm", "socket"])
@pytest.mark.parametrize("n_servers", [1, 2])
def test_the_center_is_reported_as_the_push_left_it(tmp_path: Path, transport: str, n_servers: int) -> None:
    settings = make_settings(tmp_path, transport=transport, n_servers=n_servers, moving_rate=0.25)
    with start_exchange(settings, initial_vector()) as running:
        link = connect(running.address)
        link.join(0)
        start = link.pull()
        assert link.exchange(start)[1].center is None, "not asked for"
        link.report_center()
        _, report = link.exchange(start + np.float32(2.0))
        assert report.center is not None
        np.testing.assert_allclose(report.center, start + 0.5, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(report.center, link.look())
        link.close()


def test_big_state_arrives_whole(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, n_workers=1, schedule=Schedule(2, snapshot=1))
    history = np.random.default_rng(0).standard_normal((2, 700_001)).astype(np.float32)
    with start_exchange(settings, initial_vector()) as running:
        link = connect(running.address)
        link.join(0)
        link.acknowledge(link.request_grant(1))  # type: ignore[arg-type]
        link.send_state(1, {"updates": 1}, {"history": history, "count": np.int64(3)[None]})
        link.close()
        # The server copies the center aside; the disk may be slow.
        wait_until(lambda: running.poll().snapshots == (1,), "the snapshot")
    with np.load(settings.work / "pending" / "iter_1" / "worker_0.npz") as arrays:
        np.testing.assert_array_equal(arrays["history"], history)
        assert arrays["count"].tolist() == [3]


def test_256_connections_are_held_and_cost_the_server_next_to_no_memory(tmp_path: Path) -> None:
    n_workers, n_params = 256, 50_000
    settings = make_settings(
        tmp_path, n_params=n_params, n_workers=n_workers, chunk=10_000, transport="socket", exchange_timeout_s=60.0
    )
    links = []
    deadline = time.monotonic() + 120.0
    with start_exchange(settings, initial_vector(n_params)) as running:
        n_bytes = []
        for worker in range(n_workers):
            links.append(connect(running.address))
            links[-1].join(worker)
            local = links[-1].pull()
            links[-1].exchange(local + update_of(worker, n_params))
            if worker in (15, n_workers - 1):
                n_bytes.append(own_bytes(running.pid))
            assert time.monotonic() < deadline, f"only {worker} workers are in"
        # All workers are still connected: each exchanges again over its connection.
        for link in links:
            link.exchange(local)
        status = running.poll()
        for link in links:
            link.close()
    assert status.exchanges == (2,) * n_workers
    assert status.live_workers == tuple(range(n_workers))
    # A worker's vectors would be 200 kB each; what a connection needs is its thread and the socket's own.
    assert n_bytes[1] - n_bytes[0] < (n_workers - 16) * 100_000


def own_bytes(pid: int) -> int:
    """Private memory of the process: mapped pages of the center come and go with the system's load."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024
