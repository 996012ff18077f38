"""Signals for a stage: Ctrl-C on ``deepspark train`` and Airflow's kill reach the training process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from deepspark_ops.processes.process_table import parent_pids

_ENDING = (signal.SIGINT, signal.SIGTERM)
_HANDED_ON = (*_ENDING, signal.SIGHUP)
_LEFT_TO_THE_CHILD = 2
"""Number of ending signals passed to the child; the next ending signal ends the command and the child."""


@contextmanager
def handed_on(process: subprocess.Popen[str]) -> Iterator[None]:
    """Pass this process' SIGINT, SIGTERM and SIGHUP to a child until the block ends.

    Use in the main thread. Ignored signals stay ignored (``nohup``, background jobs). The child should have another
    process group: a terminal sends Ctrl-C to the whole group.

    Raises:
        KeyboardInterrupt: The third ending signal.
    """
    n_ending = 0

    def hand_on(number: int, frame: FrameType | None) -> None:
        nonlocal n_ending
        n_ending += number in _ENDING
        if n_ending > _LEFT_TO_THE_CHILD:
            raise KeyboardInterrupt
        process.send_signal(number)

    old_handlers = {number: signal.getsignal(number) for number in _HANDED_ON}
    handled = [number for number, handler in old_handlers.items() if handler is not signal.SIG_IGN]
    try:
        for number in handled:
            signal.signal(number, hand_on)
        yield
    finally:
        for number in handled:
            signal.signal(number, old_handlers[number])


def raise_interruption(exit_code: int) -> None:
    """End this process like the child, if a signal ended the child or the exit code is 128 + signal.

    Raises:
        KeyboardInterrupt: The signal was SIGINT.
        SystemExit: The signal was SIGTERM.
    """
    number = exit_code - 128 if exit_code > 0 else -exit_code
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)


def stop_driver(submit: subprocess.Popen[str], application: str, *, patience_s: float) -> None:
    """Send SIGTERM to the Python driver below a spark-submit and wait until spark-submit has ended.

    A training takes a snapshot meanwhile. Linux only; other systems do nothing.

    Args:
        submit: The running spark-submit.
        application: Path of the driver's file, as in spark-submit's arguments.
        patience_s: Seconds to wait at most.
    """
    drivers = [
        pid for pid, parent in parent_pids().items() if parent == submit.pid and application in _command_line(pid)
    ]
    for pid in drivers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if drivers:
        with suppress(subprocess.TimeoutExpired):
            submit.wait(patience_s)


def _command_line(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return []
