"""Every process below this one, and the end of them all: what Airflow's services leave behind is ended too."""

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
    """Make this process the parent of every descendant whose own parent ends, so that it can be found. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """Return the process ids below ``pid``, zombies left out. Linux; elsewhere none are known."""
    parents = parent_pids()
    found: list[int] = []
    layer = {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        found.extend(layer)
    return found


def end_descendants(timeout_s: float) -> None:
    """End every process below this one.

    Half of ``timeout_s`` is for those that were asked to end already; then all are asked, running tasks among them;
    what is left after the other half is killed.
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
    """Collect children, adopted ones too, that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
