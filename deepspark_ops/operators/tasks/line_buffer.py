"""A stage's lines on the way to the task's log: taken at once, written when Airflow reads.

During an outage of Airflow's API server the supervisor of a task repeats a request and reads nothing of the task's log.
A task that waited for the supervisor would not read the stage's output. Then a training's driver would wait at the next
line of output, and so would snapshots and test scores.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from typing import Final

from deepspark_ops.processes.job_log import LineHandler

KEPT: Final = 10_000
"""Lines that wait at most; a training has a few in a second, so it is an outage of half an hour and more."""
WARNINGS_KEPT: Final = 1_000
"""Warnings and errors that wait at most when there is no room for other lines any more."""
WRITTEN_WITHIN_S: Final = 900.0
"""How long the end of a stage waits for its lines to be written: as long as the scheduler waits for a sign of life
(``OUTAGE_SETTINGS`` of ``local_airflow``)."""


class LineBuffer:
    """Takes lines in a thread and writes them in another thread, in order; lines without room are counted and left out.

    Example:
        >>> written = []
        >>> lines = LineBuffer(lambda level, text: written.append(text))
        >>> lines.line(logging.INFO, "worker 0 joined")
        >>> lines.end(), written
        (True, ['worker 0 joined'])
    """

    def __init__(self, write: LineHandler, *, kept: int = KEPT, warnings_kept: int = WARNINGS_KEPT) -> None:
        """Write by ``write``; a call may wait without a limit.

        Args:
            write: Called by the buffer's own thread alone.
            kept: Lines that wait at most.
            warnings_kept: As many more, of level WARNING and above.
        """
        self._write = write
        self._kept, self._kept_in_all = kept, kept + warnings_kept
        self._changed = threading.Condition()
        self._lines: deque[tuple[int, str]] = deque()
        self._left_out = 0
        self._has_ended = False
        # The task's logger finds there what it is logging for.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="task log", daemon=True)
        self._thread.start()

    def line(self, level: int, text: str) -> None:
        """Take a line; never waits for the writing."""
        with self._changed:
            room = self._kept_in_all if level >= logging.WARNING else self._kept
            if len(self._lines) >= room:
                self._left_out += 1
                return
            self._tell_left_out()
            self._lines.append((level, text))
            self._changed.notify()

    def end(self, within_s: float = WRITTEN_WITHIN_S) -> bool:
        """Wait for the writing of all lines; return whether all lines are written."""
        with self._changed:
            self._tell_left_out()
            self._has_ended = True
            self._changed.notify()
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _tell_left_out(self) -> None:
        """Append the count of missing lines; the caller holds the condition."""
        if self._left_out:
            self._lines.append((logging.WARNING, _gap(self._left_out)))
            self._left_out = 0

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    if self._has_ended:
                        return
                    self._changed.wait()
                level, text = self._lines.popleft()
            self._write(level, text)


def _gap(count: int) -> str:
    lines = "1 line is" if count == 1 else f"{count} lines are"
    return (
        f"{lines} left out of this log here: Airflow did not read it meanwhile; what"
        " a training reported is in its events.jsonl"
    )
