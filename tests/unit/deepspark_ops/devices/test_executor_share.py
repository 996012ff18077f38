"""A worker's share of its executor's cores, from a folder in the form of the kernel's /proc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deepspark_ops.devices import executor_share as module
from deepspark_ops.devices.executor_share import SETTLED_S, executor_share

EXECUTOR, DAEMON = 10, 11


class Host:
    """Processes of a host; each sleep of the worker is a second, and more workers may start in it."""

    def __init__(self, folder: Path, command: str) -> None:
        self.folder = folder
        self.seconds = 0.0
        self.starts: dict[float, int] = {}
        self._next = 100
        self.process(EXECUTOR, 1, command)
        self.process(DAEMON, EXECUTOR, "python -m pyspark.daemon")
        self.process(9, 1, "java --cores 64 another executor")
        self.process(50, 9, "python")
        (folder / "self").mkdir()

    def process(self, pid: int, parent: int, command: str, state: str = "S") -> None:
        folder = self.folder / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_text(command.replace(" ", "\0") + "\0")
        (folder / "stat").write_text(f"{pid} (a name) 7 (S) {state} {parent} {pid} 0 0\n")

    def workers(self, n_workers: int, state: str = "S") -> None:
        for _ in range(n_workers):
            self.process(self._next, DAEMON, "python -m pyspark.daemon", state)
            self._next += 1

    def sleep(self, _: float) -> None:
        self.seconds += SETTLED_S / 2
        self.workers(self.starts.get(self.seconds, 0))

    def share(self, n_workers: int) -> int:
        return executor_share(n_workers, proc=self.folder, pid=100, now=lambda: self.seconds, sleep=self.sleep)


def test_workers_that_start_together_share_the_executors_cores(tmp_path: Path) -> None:
    host = Host(tmp_path, "java -cp x Backend --hostname h --cores 12 --app-id a")
    host.workers(1)
    host.starts = {SETTLED_S / 2: 1, SETTLED_S: 1}
    assert host.share(8) == 4
    assert host.seconds == 2 * SETTLED_S


@pytest.mark.parametrize(("cores", "n_workers", "expected"), [(1, 4, 1), (8, 2, 4), (8, 1, 8), (2, 9, 1)])
def test_nobody_waits_for_workers_that_cannot_come(tmp_path: Path, cores: int, n_workers: int, expected: int) -> None:
    host = Host(tmp_path, f"java --cores {cores}")
    host.workers(min(cores, n_workers))
    assert host.share(n_workers) == expected
    assert host.seconds == 0.0


def test_workers_that_have_ended_take_no_share(tmp_path: Path) -> None:
    host = Host(tmp_path, "java --cores 8")
    host.workers(1)
    host.workers(3, state="Z")
    assert host.share(4) == 8


def test_without_an_executor_above_the_hosts_cores_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "host_cores", lambda: 6)
    host = Host(tmp_path, "java --cores many")
    host.workers(2)
    assert host.share(2) == 3


def test_the_kernels_own_folder_is_read() -> None:
    child = (
        "import sys; from deepspark_ops.devices.executor_share import executor_share\n"
        "print(executor_share(2), flush=True); sys.stdin.read()"  # a worker stays while the other one looks
    )
    code = (
        "import subprocess, sys\n"
        "pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}\n"
        f"workers = [subprocess.Popen([sys.executable, '-c', {child!r}], **pipes) for _ in range(2)]\n"
        "print([int(worker.stdout.readline()) for worker in workers])\n"
        "for worker in workers: worker.communicate('')\n"
    )
    command = [sys.executable, "-c", code, "--cores", "14"]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert completed.stdout == "[7, 7]\n", completed.stderr
