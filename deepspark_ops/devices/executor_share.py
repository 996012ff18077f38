"""A worker's share of the executor's cores, computed in the Spark task. Standard library only.

With dynamic allocation Spark starts executors only for waiting tasks, so the driver cannot know the share beforehand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.processes.process_table import parent_pids

POLL_S: Final = 0.1
SETTLED_S: Final = 1.0
"""No process has come for this long: workers that start together are there."""
_PARENTS: Final = 4
"""The executor is the parent of Spark's daemon for Python, which is the worker's parent."""
_CORES: Final = "--cores"


def executor_share(
    n_workers: int,
    *,
    proc: Path = Path("/proc"),
    pid: int | None = None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Return the cores of this executor over the executor's workers, 1 or more.

    Wait until no further worker has started for ``SETTLED_S``, or until the executor is full.

    Args:
        n_workers: Of the run.
        proc: The kernel's folder of processes.
        pid: Process of the worker; default this one.
        now: Seconds, for tests.
        sleep: Waits some seconds, for tests.
    """
    pid = os.getpid() if pid is None else pid
    parents = parent_pids(proc)
    parent = parents.get(pid, 0)
    cores = _executor_cores(proc, parents, parent)
    most = min(cores, n_workers)
    count, since = 0, now()
    while count < most and now() - since < SETTLED_S:
        present = max(1, list(parent_pids(proc).values()).count(parent))
        if present != count:
            count, since = present, now()
        if count < most:
            sleep(POLL_S)
    return max(1, cores // max(1, count))


def _executor_cores(proc: Path, parents: Mapping[int, int], pid: int) -> int:
    """Return the cores of the executor above a process, from the command line; the host's cores without an executor."""
    for _ in range(_PARENTS):
        words: list[str] = []
        with suppress(OSError):
            words = (proc / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        for name, value in pairwise(words):
            if name == _CORES and value.isdigit() and int(value) > 0:
                return int(value)
        pid = parents.get(pid, 0)
    return host_cores()
