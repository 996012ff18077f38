"""A tree of centers between network namespaces: bytes on the cables, and a host that is lost.

Needs the right to make namespaces (root has the right); `make test-cluster` runs the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.transport.link import ExchangeStatus
from tests.integration.train.namespaces import HOST, Room, rooms
from tests.paths import ROOT
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

N_PARAMS, N_STEPS = 50_000, 1_600
LIMIT_S = 300.0


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Room]]:
    with rooms(2) as hosts_of_test:
        yield hosts_of_test


def settings_of(folder: Path, **options: str | int) -> ExchangeSettings:
    return make_settings(
        folder,
        n_params=N_PARAMS,
        n_workers=8,
        chunk=8_192,
        schedule=Schedule(N_STEPS),
        options=options,
        exchange_timeout_s=10.0,
        datasets={},
    )


@contextmanager
def workers_in(running: RunningExchange, room: Room, workers: Sequence[int]) -> Iterator[subprocess.Popen[str]]:
    """Run workers in a namespace with separate shared memory; the end of the context kills the workers."""
    host = [sys.executable, "-m", "tests.integration.exchange.tree_host", *map(str, workers)]
    command = room.command("sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", *host)
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(running.address.to_plain()) + "\n")
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def bytes_of_a_run(folder: Path, hosts: Sequence[Room], **options: str | int) -> tuple[int, ExchangeStatus]:
    """Return the bytes on the cables of a run with four workers on each host, and the run's last state."""
    old_bytes = sum(room.moved_bytes() for room in hosts)
    with (
        start_exchange(
            settings_of(folder, **options), initial_vector(N_PARAMS), listen_address=HOST, protection="tls"
        ) as running,
        workers_in(running, hosts[0], range(4)) as first_host,
        workers_in(running, hosts[1], range(4, 8)) as other,
    ):
        assert (first_host.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
        return sum(room.moved_bytes() for room in hosts) - old_bytes, running.wait(60)


def test_the_cables_carry_a_vector_for_a_host_and_not_for_each_worker(tmp_path: Path, hosts: list[Room]) -> None:
    flat, status = bytes_of_a_run(tmp_path / "flat", hosts, center="flat")
    assert (status.acknowledged, sum(status.exchanges)) == (N_STEPS, N_STEPS)
    tree, status = bytes_of_a_run(tmp_path / "tree", hosts, center="tree", root_comm_period=1)
    assert status.acknowledged == N_STEPS
    assert sum(status.exchanges) > N_STEPS / 5, "the hosts have exchanged as often as their period says"
    assert flat / tree >= 3.5, f"bytes a minibatch: flat {flat / N_STEPS:,.0f}, tree {tree / N_STEPS:,.0f}"


def test_a_host_that_is_lost_costs_its_own_workers_alone(tmp_path: Path, hosts: list[Room]) -> None:
    with (
        start_exchange(
            settings_of(tmp_path, center="tree"), initial_vector(N_PARAMS), listen_address=HOST, protection="tls"
        ) as running,
        workers_in(running, hosts[0], range(4)) as first_host,
        workers_in(running, hosts[1], range(4, 8)) as other,
    ):
        wait_until(lambda: running.center.live_workers == 2 and running.poll().clock > 100, "exchanges of two hosts")
        other.kill()
        assert first_host.wait(LIMIT_S) == 0
        status = running.wait(60)
    assert status.acknowledged == N_STEPS
    assert min(status.exchanges[:4]) > 0
