"""Processes that tests start, watch and kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.paths import ROOT


def answer_of_module(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of the tests in a separate process and return the printed JSON object."""
    completed = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    answer: dict[str, Any] = json.loads(completed.stdout)
    return answer


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs; false for a zombie.

    The first thread of a killed process may be gone while others still hold its files and locks.
    """
    return any(_runs(task) for task in Path(f"/proc/{pid}/task").glob("*"))


def _runs(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> dict[int, list[str]]:
    """Return pid -> command line of a process and of every process below it."""
    parents: dict[int, int] = {}
    commands: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                commands[int(folder.name)] = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # ended while we looked
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    pids = {pid}
    while grown := {child for child, parent in parents.items() if parent in pids} - pids:
        pids |= grown
    return {pid_: commands[pid_] for pid_ in pids if pid_ in commands}


def wait_until(condition: Callable[[], object], event: str, timeout_s: float = 60.0) -> None:
    """Return when the condition holds; fail with what was waited for if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {event}"
        time.sleep(0.01)


@contextmanager
def http_server(
    command: Callable[[int], Sequence[str | Path]],
    *,
    log: Path,
    answers_at: str,
    server_name: str,
    timeout_s: float = 180.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run a server on a free port while the block runs; yield the URL as soon as the server answers.

    Args:
        command: From the port to the command line.
        log: File for what it prints.
        answers_at: Path that it answers with 200 when it is up.
        what: What it is, for the message.
        timeout_s: How long it may take to start.
        cwd: Its folder.
        env: Its variables; default: this process'.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        server = subprocess.Popen(command(port), stdout=out, stderr=out, cwd=cwd, env=env, start_new_session=True)
    try:
        wait_until(lambda: _is_up(url + answers_at) or server.poll() is not None, server_name, timeout_s=timeout_s)
        assert server.poll() is None, log.read_text()[-4000:]
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
