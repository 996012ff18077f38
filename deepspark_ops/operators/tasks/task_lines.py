"""A stage's lines in the task's log: folded into groups, with visible warnings and a visible last message.

Airflow's UI folds the lines between ``::group::NAME`` and ``::endgroup::``. Only Airflow's logs have these marks: a
terminal shows a stage's lines by ``deepspark_ops.api.display``.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

Group = Literal["preflight", "workers", "exchange", "result"]
"""preflight: what is found and decided before workers begin; exchange: how the server did, told at the end."""

_SERVER_LINES_KEPT: Final = 500
_WORKER_LINE = re.compile(r"worker \d+[ :]")
_SERVER_LINE = "driver server "
_RESULT_LINE = re.compile(
    r"(finished|finished already|stopped by \w+( at clock=\d+)?): |driver stage .* status=(?!started)"
)


class TaskLines:
    """Writes the lines of a task to the task's log. Used by a single thread."""

    def __init__(self, log: logging.Logger, *, first: Group | None = None) -> None:
        """Write to ``log``; lines are folded from group ``first`` on, or not at all."""
        self._log = log
        self._is_grouped = first is not None
        self._next: Group | None = first
        self._open: Group | None = None
        self._errors: list[str] = []
        self._exchange: deque[str] = deque(maxlen=_SERVER_LINES_KEPT)

    def line(self, level: int, text: str) -> None:
        """Write a line. Error lines wait for the next line: the last error lines are the task's final message."""
        if level >= logging.ERROR:
            self._errors.append(text)
            return
        self._write_errors(())
        if not self._is_grouped:
            self._log.log(level, "%s", text)
        elif level >= logging.WARNING:  # folded, nobody would see it
            self._close()
            self._log.log(level, "%s", text)
        elif text.startswith(_SERVER_LINE):  # one in thirty seconds: a group for each would bury the workers'
            self._exchange.append(text)
        else:
            self._enter(text)
            self._log.log(level, "%s", text)

    def end(self, message: str = "") -> None:
        """Write the waiting lines, except the error lines of ``message``; the caller writes the message."""
        self._write_errors(message.splitlines())
        self._write_exchange()
        self._close()

    def _enter(self, text: str) -> None:
        if _WORKER_LINE.match(text):
            self._next = "workers"
        elif _RESULT_LINE.match(text):
            self._write_exchange()
            self._next = "result"
        if self._next is not None and self._open != self._next:
            self._close()
            self._begin(self._next)

    def _begin(self, group: Group) -> None:
        self._log.info("%s", f"::group::{group}")
        self._open = group

    def _close(self) -> None:
        if self._open is not None:
            self._log.info("%s", "::endgroup::")
            self._open = None

    def _write_exchange(self) -> None:
        if not self._exchange:
            return
        self._close()
        self._begin("exchange")
        for text in self._exchange:
            self._log.info("%s", text)
        self._exchange.clear()
        self._close()

    def _write_errors(self, repeated: Sequence[str]) -> None:
        error_lines = [text for text in self._errors if text not in repeated]
        self._errors.clear()
        if error_lines:
            self._close()
        for text in error_lines:
            self._log.error("%s", text)
