"""Executors without common memory, each in a network namespace of its own, whose cables are slowed and cut.

Takes minutes, and needs the right to make namespaces (root has the right); `make test-cluster` runs the file.
"""

from __future__ import annotations

import re
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.integration.train.namespaces import HOST, Room, rooms
from tests.integration.train.test_cluster import REGISTERED, spark_class, standalone_master, worker_arguments
from tests.integration.train.test_spark_job import Job

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]

KBIT_PER_S = 400
"""Of each cable from the beginning: a run takes its time on any machine."""
MAX_ITER = 6_000
CUT_S, IN_FLIGHT_S = 20.0, 5.0
LIMIT_S = 600.0
IPV4_TABLE = Path("/proc/net/tcp")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, list[Room]]]:
    """Yield the name of a master on this host with a Spark worker in each of two namespaces, its settings, these."""
    folder = tmp_path_factory.mktemp("cluster")
    settings = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\nspark.executor.cores 1\n"
    with ExitStack() as stack:
        room_list = stack.enter_context(rooms(2))
        master = stack.enter_context(standalone_master(folder, HOST, settings))
        for room in room_list:
            start = worker_arguments(master, room.address, folder / room.address)
            options = {"settings": folder / "conf", "program": room.program(folder)}
            log = folder / f"{room.address}.log"
            stack.enter_context(spark_class(*start, log=log, ready=REGISTERED, **options))
            room.limit(kbit_per_s=KBIT_PER_S)
        yield master, folder / "conf", room_list


class Run:
    """A training on both, begun and watched."""

    def __init__(self, folder: Path, master: str, **options: object) -> None:
        # What may go through common memory does, by default: nothing is common.
        limits = {"exchange_timeout_s": 60.0, "grant_timeout_s": 60.0}
        fields = {"n_workers": 2, "master": master, "comm_period": 4, **limits, **options}
        often = f"max_iter: {MAX_ITER} snapshot: {MAX_ITER // 2} display: 20"
        self.job = Job(folder, overrides=f"test_interval: {MAX_ITER} {often}", **fields)
        self.await_that(lambda: min(self.n_exchanges()) > 0)

    def await_that(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert self.job.process.poll() is None, "\n".join(self.job.lines)
            assert time.monotonic() < deadline, "\n".join(self.job.lines)
            time.sleep(0.1)

    def clocks(self) -> list[int]:
        """Return the clock of each worker's last loss event."""
        events = self.job.events("loss")
        return [max((event.clock for event in events if event.worker == worker), default=0) for worker in (0, 1)]

    def n_exchanges(self) -> list[int]:
        """Return the number of exchanges that each worker reported."""
        events = self.job.events("exchange")
        return [sum(event.data["exchanges"] for event in events if event.worker == worker) for worker in (0, 1)]

    def lost(self) -> list[int]:
        return [event.worker for event in self.job.events("worker_lost")]

    def peers(self) -> set[str]:
        """Return the addresses that have connections to the exchange server."""
        pattern = r"workers connect to the exchange server (\S+):(\d+) by TLS 1.3"
        (address,) = [match for line in self.job.lines if (match := re.search(pattern, line))]
        assert address[1] == HOST
        rows = [line.split()[1:3] for line in IPV4_TABLE.read_text().splitlines()[1:]]
        return {_dotted(remote) for local, remote in rows if int(local.partition(":")[2], 16) == int(address[2])}

    def end(self) -> None:
        """See the run end completely."""
        self.job.process.wait(LIMIT_S)
        assert self.job.wait() == 0, "\n".join(self.job.lines)
        assert {event.data["transport"] for event in self.job.events("worker_joined")} == {"socket"}
        last = self.job.events("stage")[-1]
        assert (last.data["status"], last.clock) == ("finished", MAX_ITER)
        assert self.job.paths.snapshot_iterations() == [MAX_ITER // 2, MAX_ITER]
        assert self.job.events("evaluation")[-1].data["accuracy"] == 1.0


def _dotted(hexadecimal: str) -> str:
    """Return an address of /proc, a number in this host's byte order, with dots."""
    return socket.inet_ntoa(struct.pack("=I", int(hexadecimal.partition(":")[0], 16)))


@pytest.fixture
def begin(
    both: tuple[str, Path, list[Room]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Run, Room]]]:
    """Yield a function that begins a run of two workers, and returns the run and the namespace of one."""
    master, settings, room_list = both
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))

    def begun(**options: object) -> tuple[Run, Room]:
        run = Run(tmp_path, master, **options)
        assert {room.address for room in room_list} <= run.peers()
        return run, room_list[1]

    yield begun
    room_list[1].join()
    room_list[1].limit(kbit_per_s=KBIT_PER_S)


def test_a_slow_cable_slows_its_worker_alone(begin: Callable[..., tuple[Run, Room]]) -> None:
    run, room = begin()
    old_counts = run.n_exchanges()
    room.limit(kbit_per_s=KBIT_PER_S // 10)
    run.await_that(lambda: max(np.subtract(run.n_exchanges(), old_counts)) >= 100)
    slow, quick = sorted(np.subtract(run.n_exchanges(), old_counts))
    assert slow < quick / 2
    room.limit(kbit_per_s=KBIT_PER_S)
    run.end()
    assert run.lost() == []
    assert len(run.job.events("worker_joined")) == 2


def test_a_cable_that_is_cut_for_20_s_loses_no_worker(begin: Callable[..., tuple[Run, Room]]) -> None:
    run, room = begin()
    room.cut()
    time.sleep(IN_FLIGHT_S)
    old_clocks = run.clocks()
    time.sleep(CUT_S - IN_FLIGHT_S)
    new_clocks = run.clocks()
    (silent,) = [worker for worker in (0, 1) if new_clocks[worker] == old_clocks[worker]]
    assert new_clocks[1 - silent] > old_clocks[1 - silent]
    room.join()
    run.await_that(lambda: run.clocks()[silent] > new_clocks[silent])
    run.end()
    assert run.lost() == []
    assert len(run.job.events("worker_joined")) == 2


def test_a_cable_that_is_cut_for_good_costs_its_worker_alone(begin: Callable[..., tuple[Run, Room]]) -> None:
    run, room = begin(grant_timeout_s=15.0)
    room.cut()
    run.end()
    (gone,) = run.lost()
    message = (
        rf"worker {gone} was lost at minibatch \d+ \(.+\) and did not come back; the run ended with 1 of 2 workers"
    )
    assert any(re.search(rf"^WARNING: .*{message}$", line) for line in run.job.lines), "\n".join(run.job.lines)
    assert re.match(message, [event.data["text"] for event in run.job.events("note") if "warning" in event.data][-1])
