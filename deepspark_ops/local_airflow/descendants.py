"""Processes below this process, and a way to end all, including processes left behind by Airflow's services."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from deepspark_ops.processes.process_table import parent_pids

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_POLL_S = 0.05


def adopt_orphans() -> None:
    """Make this process the parent of every orphan among its descendants, for a later search. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """Return the process ids below ``pid``, without zombies. Linux; empty on other systems."""
    parents = parent_pids()
    pids: list[int] = []
    layer = {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        pids.extend(layer)
    return pids


def end_descendants(timeout_s: float) -> None:
    """End every process below this process.

    Processes with an earlier request to end have half of ``timeout_s``. Then all processes get SIGTERM, running tasks
    included; after the other half the remaining processes are killed.
    """
    for number, limit_s in ((0, timeout_s / 2), (signal.SIGTERM, timeout_s / 2), (signal.SIGKILL, None)):
        deadline = None if limit_s is None else time.monotonic() + limit_s
        if number != signal.SIGKILL:
            _signal_all(number)
        while descendants(os.getpid()):
            if deadline is not None and time.monotonic() > deadline:
                break
            if number == signal.SIGKILL:
                _signal_all(number)
            _reap()
            time.sleep(_POLL_S)


def _signal_all(number: int) -> None:
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _reap() -> None:
    """Collect ended children, including adopted children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
