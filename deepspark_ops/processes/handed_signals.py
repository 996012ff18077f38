"""Signals that a stage answers: Ctrl-C on ``deepspark train`` and Airflow's kill reach the process that trains."""

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
"""Signals that ask for the end; what comes after them ends the command and with it the child."""


@contextmanager
def handed_on(process: subprocess.Popen[str]) -> Iterator[None]:
    """Send this process' SIGINT, SIGTERM and SIGHUP to a child instead, until the block ends.

    Use it in the main thread. Signals that were ignored before stay ignored (``nohup``, jobs in the background). The
    child should have a process group of its own: a terminal sends Ctrl-C to the whole group.

    Raises:
        KeyboardInterrupt: The third signal that asks for the end.
    """
    n_ending = 0

    def hand_on(number: int, frame: FrameType | None) -> None:
        nonlocal n_ending
        n_ending += number in _ENDING
        if n_ending > _LEFT_TO_THE_CHILD:
            raise KeyboardInterrupt
        process.send_signal(number)

    before = {number: signal.getsignal(number) for number in _HANDED_ON}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        for number in taken:
            signal.signal(number, hand_on)
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def raise_interruption(exit_code: int) -> None:
    """End this process as its child did, if that was ended by a signal or says so by its exit code, 128 + number.

    Raises:
        KeyboardInterrupt: It was SIGINT.
        SystemExit: It was SIGTERM.
    """
    number = exit_code - 128 if exit_code > 0 else -exit_code
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)


def stop_driver(submit: subprocess.Popen[str], application: str, *, patience_s: float) -> None:
    """Ask the Python driver below a spark-submit to end (SIGTERM) and wait until spark-submit has ended with it.

    A training takes a snapshot meanwhile. Linux only; elsewhere nothing happens.

    Args:
        submit: The running spark-submit.
        application: Path of the driver's file, as spark-submit was given it.
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
