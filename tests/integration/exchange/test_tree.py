"""A tree of centers with a real server: two hosts with a shared memory each, kills, files that stay behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.center.memory import host_center_path
from deepspark_ops.exchange.client import SocketLink
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.param_vector import StatisticBlobs, Vector
from deepspark_ops.train.worker.loop.background_exchange import BackgroundExchange
from deepspark_ops.train.worker.loop.loop_plan import HOST_CLOCK
from tests.integration.exchange.test_deaths import kill_server
from tests.paths import ROOT
from tests.reference.slow_easgd import slow_tree
from tests.unit.deepspark_ops.exchange.exchange_run import WorkerRun, initial_vector, make_settings, update_of, work

HOSTS = ((0, 1, 2, 3), (4, 5, 6, 7))


def tree_settings(folder: Path, *, n_workers: int = 8, **fields: Any) -> ExchangeSettings:
    options = {"center": "tree", **fields.pop("options", {})}
    return make_settings(folder, n_workers=n_workers, options=options, transport="socket", **fields)


def link_of(address: ExchangeAddress, folder: Path, worker: int) -> SocketLink:
    """Return a link of a worker on host ``worker // 4``, with a folder in place of the host's shared memory."""
    return SocketLink(address, folder / f"shared{worker // 4}")


def all_at_once(running: RunningExchange, folder: Path, workers: Sequence[int]) -> dict[int, WorkerRun]:
    runs: dict[int, WorkerRun] = {}
    threads = [
        threading.Thread(target=lambda w=w: runs.update({w: work(link_of(running.address, folder, w), w, want=2)}))  # type: ignore[misc]
        for w in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return runs


def joined_links(running: RunningExchange, folder: Path) -> tuple[list[SocketLink], list[Vector]]:
    """Return the links of eight joined workers, and their start vectors."""
    links = [link_of(running.address, folder, worker) for worker in range(8)]
    for worker, link in enumerate(links):
        link.join(worker)
    return links, [link.pull() for link in links]


@pytest.mark.parametrize(("n_servers", "is_tls"), [(1, True), (3, False)])
def test_a_fixed_order_over_sockets_is_the_papers(tmp_path: Path, n_servers: int, is_tls: bool) -> None:
    n_params, order = 200, np.random.default_rng(5).integers(0, 8, 60).tolist()
    steps = [(worker, update_of(step, n_params)) for step, worker in enumerate(order)]
    options = {"root_comm_period": 1, "root_moving_rate": 0.4}
    settings = tree_settings(
        tmp_path, n_params=n_params, chunk=33, moving_rate=0.3, n_servers=n_servers, options=options
    )
    protection = "tls" if is_tls else "off"
    with start_exchange(settings, initial_vector(n_params), protection=protection) as running:
        links, locals_ = joined_links(running, tmp_path)
        for worker, update in steps:
            locals_[worker], _ = links[worker].exchange(locals_[worker] + update)
        root = running.center.snapshot()
        np.testing.assert_array_equal(links[0].look(), root)
        assert running.center.live_workers == 2
        assert sum(running.poll().exchanges) < 60 / 3
        kill_server(running)
        for link in links:
            link.heartbeat()
        assert running.center.live_workers == 2, "the new server knows the hosts"
        for link in links:
            link.close()
    expected, _, expected_root = slow_tree(initial_vector(n_params), steps, HOSTS, (0.3, 0.4), lambda _: 1)
    np.testing.assert_allclose(locals_, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(root, expected_root, rtol=0, atol=1e-6)
    assert [path.name for path in tmp_path.glob("shared*/*")] == []


def test_hosts_exchange_a_quarter_of_the_bytes_of_workers(tmp_path: Path) -> None:
    moved = {}
    for center, options in (("flat", {"center": "flat"}), ("tree", {"root_comm_period": 1})):
        settings = tree_settings(tmp_path / center, schedule=Schedule(400), options=options)
        with start_exchange(settings, initial_vector()) as running:
            runs = all_at_once(running, tmp_path, range(8))
            status = running.wait(60)
        n_exchanges = sum(len(run.reports) for run in runs.values())
        moved[center] = status.moved_bytes / n_exchanges
        assert status.acknowledged == 400
    assert moved["flat"] / moved["tree"] >= 3.5


def test_the_last_snapshot_and_the_sum_have_every_step(tmp_path: Path) -> None:
    settings = tree_settings(tmp_path, schedule=Schedule(120), lock="striped")
    with start_exchange(settings, initial_vector()) as running:
        runs = all_at_once(running, tmp_path, [1, 2, 3, 5, 6, 7])
        status = running.wait(60)
        root = running.center.snapshot()
    saved = np.fromfile(settings.work / "pending" / "iter_120" / "center.f32", np.float32)
    np.testing.assert_array_equal(saved, root)
    assert (status.acknowledged, status.snapshots) == (120, (120,))
    assert sorted(s for run in runs.values() for g in run.grants for s in range(g.start, g.stop)) == list(range(120))


def vectors_of(links: Sequence[SocketLink], locals_: Sequence[Vector], root: Vector) -> list[Vector]:
    """Return the vectors of workers, hosts and root."""
    hosts = [links[workers[0]]._host for workers in HOSTS]
    return [*locals_, *(host.center.vector for host in hosts if host is not None), root]


def test_sixteen_bits_between_hosts_and_root_lose_nothing(tmp_path: Path) -> None:
    n_params, order = 200, np.random.default_rng(6).integers(0, 8, 60).tolist()
    steps = [(worker, update_of(step, n_params)) for step, worker in enumerate(order)]
    fields = {"moving_rate": 0.3, "wire_dtype": "bfloat16", "options": {"root_comm_period": 1, "root_moving_rate": 0.4}}
    with start_exchange(tree_settings(tmp_path, n_params=n_params, **fields), initial_vector(n_params)) as running:
        links, locals_ = joined_links(running, tmp_path)
        for worker, update in steps:
            locals_[worker], _ = links[worker].exchange(locals_[worker] + update)
        vectors = vectors_of(links, locals_, running.center.vector)
        total = np.sum(vectors, axis=0, dtype=np.float64)
        status = running.poll()
        for link in links:
            link.close()
    starts = 2 * 4 * n_params  # each host has copied the root
    assert status.moved_bytes == 6 * n_params * sum(status.exchanges) + starts, "two bytes up, four down"
    all_updates = np.sum([update for _, update in steps], axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, 11 * initial_vector(n_params).astype(np.float64) + all_updates, rtol=0, atol=1e-4)
    expected, hosts, root = slow_tree(initial_vector(n_params), steps, HOSTS, (0.3, 0.4), lambda _: 1)
    distances = np.abs(np.subtract(vectors, [*expected, *hosts, root]))
    assert 1e-5 < distances.max() < 0.02, "a bfloat16 has eight bits"


def test_exchanges_beside_the_steps_keep_every_step(tmp_path: Path) -> None:
    """With ``overlap`` a worker steps on during the exchange, and the host's exchange may be part of it."""
    n_steps = 160
    with start_exchange(tree_settings(tmp_path, lock="striped"), initial_vector()) as running:
        links, locals_ = joined_links(running, tmp_path)
        exchanges = [BackgroundExchange(link, StatisticBlobs(), HOST_CLOCK.thread()) for link in links]
        for step in range(n_steps):
            worker = step % 8
            if step >= 8:
                locals_[worker], report = exchanges[worker].finish(locals_[worker])
                assert report.transport == "tree"
            locals_[worker] = locals_[worker] + update_of(step)
            exchanges[worker].start(locals_[worker].copy, measure_distance=False)
        for worker in range(8):
            locals_[worker], _ = exchanges[worker].finish(locals_[worker])
            exchanges[worker].close()
        total = np.sum(vectors_of(links, locals_, running.center.vector), axis=0, dtype=np.float64)
        assert sum(running.poll().exchanges) > n_steps / 5
        for link in links:
            link.close()
    updates = np.sum([update_of(step) for step in range(n_steps)], axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, 11 * initial_vector().astype(np.float64) + updates, rtol=0, atol=1e-3)


HOLDER = """
import json, sys, time
from pathlib import Path
from deepspark_ops.exchange.client import SocketLink
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.tree_transfer import TreeTransfer

def hold(self):
    print("holds", flush=True)
    time.sleep(600)

TreeTransfer._exchange_host = hold
link = SocketLink(ExchangeAddress.from_plain(json.loads(sys.stdin.readline())), Path(sys.argv[1]))
link.join(0)
local = link.pull()
while True:
    link.exchange(local)
"""


def test_another_worker_exchanges_with_the_root_after_a_kill(tmp_path: Path) -> None:
    settings = tree_settings(tmp_path, n_workers=4, exchange_timeout_s=5.0)
    program = [sys.executable, "-c", HOLDER, str(tmp_path / "shared0")]
    with (
        start_exchange(settings, initial_vector()) as running,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder,
    ):
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(json.dumps(running.address.to_plain()) + "\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "holds\n"
        link = link_of(running.address, tmp_path, 1)
        link.join(1)
        local = link.pull() + 1
        for _ in range(8):
            local, _ = link.exchange(local)  # nobody waits for the host's exchange
        assert running.poll().exchanges == (0, 0, 0, 0)
        holder.kill()
        holder.wait(30)
        for _ in range(2):
            local, _ = link.exchange(local)
        assert running.poll().exchanges == (0, 2, 0, 0), "worker 1 is alone on the host"
        link.close()
        runs = all_at_once(running, tmp_path, [1, 2, 3])
        assert running.wait(60).acknowledged == 40
        assert len(runs) == 3


def test_a_file_that_killed_workers_left_is_not_resumed(tmp_path: Path) -> None:
    settings = tree_settings(tmp_path, n_workers=2)
    with start_exchange(settings, initial_vector()) as running:
        link = link_of(running.address, tmp_path, 0)
        link.join(0)
        path = host_center_path(tmp_path / "shared0", settings.run_id)
        left_behind = path.read_bytes()
        link.exchange(link.pull() + 8)
        link.close()
        assert not path.exists()
        path.write_bytes(left_behind)  # a killed worker removes nothing
        link = link_of(running.address, tmp_path, 1)
        link.join(1)
        np.testing.assert_array_equal(link.pull(), running.center.vector)
        link.close()


def test_a_folder_of_the_centers_name_is_refused(tmp_path: Path) -> None:
    settings = tree_settings(tmp_path)
    host_center_path(tmp_path / "shared0", settings.run_id).mkdir(parents=True)
    with start_exchange(settings, initial_vector()) as running:
        link = link_of(running.address, tmp_path, 0)
        with pytest.raises(ConfigError, match=r"-host\.center: no regular file of user \d+; remove it, or set center"):
            link.join(0)
        link.close()


def test_workers_on_the_servers_host_are_children_of_the_root(tmp_path: Path) -> None:
    settings = replace(tree_settings(tmp_path), transport="auto")
    with start_exchange(settings, initial_vector()) as running:
        local_links = [SocketLink(running.address) for _ in range(2)]
        assert [link.join(worker).transport for worker, link in enumerate(local_links)] == ["shm", "shm"]
        remote_links = [link_of(replace(running.address, transport="socket"), tmp_path, worker) for worker in (4, 5, 6)]
        assert {link.join(worker).transport for worker, link in enumerate(remote_links, 4)} == {"tree"}
        assert running.center.live_workers == 3
        for link in (*local_links, *remote_links):
            link.close()
