"""Kills of workers and servers; the run goes on."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, ExchangeUnavailable, WorkerFenced, WorkerReplaced
from deepspark_ops.events import read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server import launch
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.state.grants import Grant, Schedule
from deepspark_ops.exchange.strategies.easgd import Easgd
from tests.paths import ROOT
from tests.processes import is_alive, wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import (
    CHUNK,
    WorkerRun,
    initial_vector,
    make_settings,
    sum_before_and_after,
    update_of,
    work,
)


def kill_server(running: RunningExchange, index: int = 0) -> None:
    n_restarts, pid = running.restarts, running.pids[index]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: running.restarts > n_restarts and running.pids[index] != pid, "a new server")


@pytest.mark.parametrize(("transport", "n_servers"), [("socket", 2), ("shm", 1)])
def test_one_workers_run_is_the_same_although_the_server_is_killed(
    tmp_path: Path, transport: str, n_servers: int
) -> None:
    n_params = 50_000
    settings = make_settings(
        tmp_path, n_params=n_params, n_workers=1, chunk=1024, transport=transport, n_servers=n_servers
    )
    with start_exchange(settings, initial_vector(n_params)) as running:

        def kill_sometimes(grant: Grant) -> None:
            if grant.start in (8, 20):
                assert running.poll().clock == grant.stop  # the new server's clock, also if it does not answer at once
                kill_server(running, index=n_servers - 1 if grant.start == 8 else 0)

        run = work(connect(running.address), 0, between=kill_sometimes)
        status = running.wait(60)
        center = running.center.snapshot()
    expected = initial_vector(n_params)
    for step in range(40):
        expected = expected + update_of(step, n_params)
    np.testing.assert_array_equal(run.local, expected)
    np.testing.assert_array_equal(center, expected)
    assert [g.start for g in run.grants if g.count] == [0, 4, 8, 10, 14, 18, 20, 24, 28, 30, 34, 38]
    assert (status.acknowledged, status.snapshots, running.restarts) == (40, (20, 40), 2)
    restarts = [event for event in read_events(settings.events) if "server_start" in event.data]
    assert [event.data["server_start"] for event in restarts] == ([2, 3] if n_servers == 1 else [2, 2])
    assert [event.clock for event in restarts] == [10, 24]  # the open grants when the server was killed


def test_a_damaged_journal_ends_the_run_with_its_file_and_line(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path, exchange_timeout_s=3.0), initial_vector()) as running:
        link = connect(running.address)
        link.join(0)
        link.request_grant(4)
        journal = running.settings.journal()
        assert tmp_path not in journal.parents, "the run's folder may be on a slow disk"
        lines = journal.read_bytes().splitlines()
        journal.write_bytes(b"\n".join([lines[0], b'{"at": 1.0, "call": "jo', *lines[2:], b""]))
        os.kill(running.pid, signal.SIGKILL)
        wait_until(lambda: running._servers[0].given_up is not None, "the end of the tries")
        with pytest.raises(ExchangeUnavailable, match=r"exchange\.journal:2: not a line of an exchange journal"):
            running.wait(30)
        link.close()
    assert not journal.parent.exists()


@pytest.mark.parametrize("n_servers", [1, 3])
def test_killing_the_server_in_the_middle_of_exchanges_loses_at_most_one_chunk_each(
    tmp_path: Path, n_servers: int
) -> None:
    n_params, chunk, n_workers = 200_000, 1_024, 2
    settings = make_settings(
        tmp_path,
        n_params=n_params,
        n_workers=n_workers,
        chunk=chunk,
        transport="socket",
        schedule=Schedule(120),
        exchange_timeout_s=30.0,
        n_servers=n_servers,
    )
    runs: dict[int, WorkerRun] = {}
    with start_exchange(settings, initial_vector(n_params)) as running:
        threads = [
            threading.Thread(target=lambda i=i: runs.update({i: work(connect(running.address), i, want=2)}))  # type: ignore[misc]
            for i in range(n_workers)
        ]
        for thread in threads:
            thread.start()
        for kill in range(3):
            time.sleep(0.05)
            kill_server(running, index=kill % n_servers)
        for thread in threads:
            thread.join(60)
        status = running.wait(60)
        center = running.center.snapshot()
    assert sorted(s for run in runs.values() for g in run.grants for s in range(g.start, g.stop)) == list(range(120))
    held, expected = sum_before_and_after(list(runs.values()), center, 120)
    off = np.abs(held - expected) > 1e-3  # float32 rounding of 120 exchanges is 1e-5
    chunks_off = {int(i) // chunk for i in np.flatnonzero(off)}
    # Pushes of both workers may also overlap in a chunk; the workers start half a vector apart, so few do.
    assert status.uncertain_chunks <= 3 * n_workers
    assert len(chunks_off) <= status.uncertain_chunks + 20


def test_lost_workers_steps_are_done_by_the_others(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, exchange_timeout_s=2.0)
    with start_exchange(settings, initial_vector()) as running:
        crashing = connect(running.address)
        crashing.join(1)
        grant = crashing.request_grant(4)
        lease = crashing.lease()
        crashing.close()
        run = work(connect(running.address), 0)
        status = running.poll()
    assert isinstance(grant, Grant)
    assert lease is not None
    assert sorted(s for g in run.grants for s in range(g.start, g.stop)) == list(range(40))
    assert status.reissued_grants == 1
    lost = [e for e in read_events(tmp_path / "events.jsonl") if e.kind == "worker_lost"]
    assert [(e.worker, e.data["reason"]) for e in lost] == [(1, "its connection ended")]


def test_a_new_process_takes_a_workers_place_at_once(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        old, new = connect(running.address), connect(running.address)
        old.join(0)
        first = old.request_grant(4)
        new.join(0)
        second = new.request_grant(4)
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert (second.start, second.count) == (first.start, first.count)
        with pytest.raises(WorkerReplaced, match=r"^worker 0: a newer process has taken its place; leaving$"):
            old.acknowledge(first)
        new.close()
        old.close()


def at_second_chunk(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Have ``action`` called once, when the next exchange of this process is at its second chunk."""
    worker_chunk, calls = Easgd.worker_chunk, itertools.count(1)

    def interrupted(self: Easgd, *args: Any) -> None:
        if next(calls) == 2:
            action()
        worker_chunk(self, *args)

    monkeypatch.setattr(Easgd, "worker_chunk", interrupted)


@pytest.mark.parametrize("transport", ["socket", "shm"])
def test_a_process_that_is_replaced_in_its_exchange_leaves_and_pushes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    settings = make_settings(tmp_path, transport=transport)
    with start_exchange(settings, initial_vector()) as running:
        old, new = connect(running.address), connect(running.address)
        old.join(0)
        at_second_chunk(monkeypatch, lambda: [new.join(0)] and None)
        with pytest.raises(WorkerReplaced, match=r"^worker 0: a newer process has taken its place; leaving$"):
            old.exchange(old.pull() + 1)
        np.testing.assert_array_equal(running.center.vector[CHUNK:], initial_vector()[CHUNK:])
        assert running.poll().exchanges == (0, 0)
        _, report = new.exchange(new.pull() + 1)
        assert report.sequence == 1
        assert running.poll().exchanges == (1, 0)
        new.close()
        old.close()


@pytest.mark.parametrize("transport", ["socket", "shm"])
def test_a_worker_that_stood_still_until_it_was_given_up_leaves_and_may_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    settings = make_settings(tmp_path, transport=transport, grant_timeout_s=3.0)
    with start_exchange(settings, initial_vector()) as running:
        stopped, other = connect(running.address), connect(running.address)
        stopped.join(0)
        stopped_local = stopped.pull()
        other.join(1)
        other_local = other.pull()

        def stand_still() -> None:
            def is_lost() -> bool:
                other.heartbeat()  # its own silence is not to end the wait
                return 0 not in running.poll().live_workers

            wait_until(is_lost, "the loss of worker 0")
            other.exchange(other_local)

        at_second_chunk(monkeypatch, stand_still)
        with pytest.raises(WorkerFenced, match=r"^worker 0: silent for so long that it was given up"):
            stopped.exchange(stopped_local)
        assert running.poll().exchanges == (0, 1)
        second_link = connect(running.address)
        second_link.join(0)
        second_link.exchange(second_link.pull())
        assert running.poll().exchanges == (1, 1)
        for link in (stopped, other, second_link):
            link.close()


def test_stop_leaves_nothing(tmp_path: Path) -> None:
    running = start_exchange(make_settings(tmp_path), initial_vector())
    pid, path, port = running.pid, running.center.path, running.address.port
    assert path is not None
    link = connect(running.address)
    link.join(0)
    running.stop()
    running.stop()
    assert not is_alive(pid)
    assert not path.exists()
    assert list(tmp_path.glob("work/*")) == []
    assert not running.settings.journal().parent.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 30)
    link.close()


def test_server_that_ends_is_named_with_the_time_and_the_tries(tmp_path: Path) -> None:
    running = start_exchange(make_settings(tmp_path), initial_vector())
    link = connect(running.address)
    link.join(1)
    port = running.address.port
    running.stop()
    link._server.address = replace(running.address, exchange_timeout_s=0.4)  # type: ignore[attr-defined]
    with pytest.raises(ExchangeUnavailable) as caught:
        link.request_grant(4)
    message = str(caught.value)
    assert message.startswith(
        f"worker 1: no answer from exchange server 127.0.0.1:{port} after exchange_timeout_s=0.4, "
    )
    assert "tries; is the driver still running?" in message
    link.close()


DRIVER = """
    import os, sys, time
    from pathlib import Path
    from deepspark_ops.exchange.center import memory
    from deepspark_ops.exchange.server.launch import start_exchange
    from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

    if "no room" in sys.argv[2]:
        memory.SHARED_MEMORY = Path(sys.argv[1]) / "none"
    running = start_exchange(make_settings(Path(sys.argv[1])), initial_vector())
    if sys.argv[2] == "fork":
        if os.fork() == 0:
            time.sleep(60)  # holds the other end of the server's standard input
            os._exit(0)
    print(running.pid, running.center.path, flush=True)
    time.sleep(60)
"""


@contextmanager
def driver_process(folder: Path, mode: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Run ``DRIVER``; yield its process, the server's id and the center's file. The block ends all processes."""
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(folder), mode],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    assert driver.stdout is not None
    pid, center_path = driver.stdout.readline().split()
    try:
        yield driver, int(pid), Path(center_path)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(60)
        driver.stdout.close()


@pytest.mark.parametrize("mode", ["plain", "fork"])
def test_server_and_its_memory_go_when_the_driver_is_killed(tmp_path: Path, mode: str) -> None:
    with driver_process(tmp_path, mode) as (driver, pid, center_path):
        assert is_alive(pid)
        assert center_path.exists()
        driver.kill()
        driver.wait(60)
        wait_until(lambda: not is_alive(pid), "the server's end")
        assert not center_path.exists()


@pytest.mark.parametrize("mode", ["plain", "fork"])
def test_a_stopped_server_and_its_memory_go_when_the_driver_is_killed_and_the_next_start_continues(
    tmp_path: Path, mode: str
) -> None:
    with driver_process(tmp_path, mode) as (driver, pid, center_path):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "the stopped server")
        driver.kill()
        driver.wait(60)
        wait_until(lambda: not is_alive(pid), "the stopped server's end", timeout_s=20)
        assert not center_path.exists()
        with start_exchange(make_settings(tmp_path), initial_vector()) as running:
            link = connect(running.address)
            link.join(0)
            assert link.request_grant(4).start == 0
            link.close()


def test_a_server_that_is_stopped_and_continued_serves_on_while_its_driver_lives(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        os.kill(running.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(running.pid) == "T", "the stopped server")
        os.kill(running.pid, signal.SIGCONT)
        assert running.poll().clock == 0
        assert running.restarts == 0


def state_of(pid: int) -> str:
    """Return the letter of a process' state: ``T`` for a stopped one."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_center_in_the_run_folder_goes_with_the_next_driver_after_driver_and_server_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with driver_process(tmp_path, "no room in shared memory") as (driver, pid, center_path):
        os.kill(driver.pid, signal.SIGSTOP)  # to prevent the start of another server
        os.kill(pid, signal.SIGKILL)
        driver.kill()
        driver.wait(60)
        assert center_path.parent == tmp_path / "work"
        wait_until(lambda: not is_alive(pid), "the server's end")
        assert center_path.exists()
        (journal,) = (tmp_path / "temporary").iterdir()
        os.utime(journal, (0, 0))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        assert not center_path.exists()
        assert running.poll().clock == 0
        assert list((tmp_path / "temporary").iterdir()) == [running.settings.journal().parent]
        os.utime(running.settings.journal().parent, (0, 0))
        with start_exchange(make_settings(tmp_path / "other"), initial_vector()):
            assert running.settings.journal().exists(), "its driver lives"
    assert list(tmp_path.glob("work/*")) == []
    assert not running.settings.journal().parent.exists()


def test_signals_to_the_whole_group_leave_the_decision_to_the_driver(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(running.pid, number)
        assert running.poll().clock == 0
        assert running.restarts == 0


def test_taken_port_is_named_with_its_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            start_exchange(make_settings(tmp_path), initial_vector(), listen_port=port)
    assert str(caught.value) == (
        f"listen_address=127.0.0.1, listen_port={port}: Address already in use; another process may hold the port:"
        " use listen_port=0 (chosen by the system) or another one, and an address of this host"
    )


def test_server_that_cannot_start_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(ExchangeUnavailable, match=r"did not get ready: it ended with code 1; its log is above"):
        start_exchange(make_settings(tmp_path), initial_vector())


def test_a_server_that_hangs_at_its_start_is_ended_and_the_message_names_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nwhile read -r line; do :; done\n")  # ends with its standard input
    hanging.chmod(0o700)
    monkeypatch.setattr(launch.sys, "executable", str(hanging))
    monkeypatch.setattr(launch, "START_TIMEOUT_S", 0.3)
    message = r"^the exchange server did not get ready within 0\.3 s and was ended; its log is above$"
    with pytest.raises(ExchangeUnavailable, match=message):
        start_exchange(make_settings(tmp_path), initial_vector())


def test_stop_does_not_wait_for_a_server_that_hangs_at_its_second_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, starts = tmp_path / "python", tmp_path / "starts"
    hanging.write_text(f"#!/bin/sh\necho start >> {starts}\nwhile read -r line; do :; done\n")
    hanging.chmod(0o700)
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        monkeypatch.setattr(launch.sys, "executable", str(hanging))
        monkeypatch.setattr(launch, "START_TIMEOUT_S", 300.0)
        os.kill(running.pid, signal.SIGKILL)
        wait_until(starts.exists, "the second start")
        running.stop()
        assert running._servers[0].given_up is None
        assert not running._servers[0]._watcher.is_alive()  # type: ignore[union-attr]


def test_a_server_that_keeps_dying_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MAX_QUICK_DEATHS", 2)
    monkeypatch.setattr(launch, "QUICK_DEATH_S", 60.0)  # a busy machine may take a second to the kill
    with start_exchange(make_settings(tmp_path), initial_vector()) as running:
        kill_server(running)
        os.kill(running.pid, signal.SIGKILL)
        wait_until(lambda: running._servers[0].given_up is not None, "giving up")
        with pytest.raises(ExchangeUnavailable, match="died 2 times right after its start"):
            running.poll()


def test_server_starts_without_heavy_modules() -> None:
    # How long its start takes is measured by benchmarks/exchange.py.
    code = "import sys, json, deepspark_ops.exchange.server.process; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    heavy = {"tensorflow", "pydantic", "cv2", "pyspark", "airflow", "google.protobuf", "h5py", "lmdb", "rich"}
    assert not heavy & set(loaded)
