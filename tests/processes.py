"""Processes that tests start, watch and kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.paths import ROOT


def answer_of_module(module: str) -> dict[str, Any]:
    """Run a module of the tests in a process of its own and return the JSON object that it prints."""
    done = subprocess.run([sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs; one that has ended and waits for its parent does not.

    The first thread of a killed process may be gone while others still hold its files and locks.
    """
    return any(_runs(task) for task in Path(f"/proc/{pid}/task").glob("*"))


def _runs(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Return when the condition holds; fail with what was waited for if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.01)
