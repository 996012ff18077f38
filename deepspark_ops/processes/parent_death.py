"""A signal to this process when the starting thread of the parent ends. Linux only; standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def signal_at_parent_death(number: signal.Signals) -> None:
    """Ask the kernel for signal ``number`` when the starting thread of the parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))


def end_with_parent_thread(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Request signal ``number`` when the starting thread of process ``parent`` ends, or now if ``parent`` has ended."""
    if sys.platform != "linux":
        return
    signal_at_parent_death(number)
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), number)
