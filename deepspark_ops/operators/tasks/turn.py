"""A single task at a time writes a folder: the turn's holder, and the wait of another task without a worker's slot."""

from __future__ import annotations

import asyncio
import fcntl
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from airflow.triggers.base import BaseTrigger, TriggerEvent

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.stores.store_path import DataPath, StorePath

POLL_S: Final = 5.0
LOG_EVERY_S: Final = 300.0
_BLIND_S: Final = 60.0
"""A triggerer that does not see the folder wakes the task so often; the task looks itself."""


@contextmanager
def turn_at(folder: DataPath, task: str) -> Iterator[bool]:
    """Hold the turn at a folder, until the end of the block or of the process.

    Args:
        folder: It need not exist.
        task: The task that takes its turn, in words. A task that waits reads them.

    Yields:
        Whether the turn was free. If it was not, nothing is held. A store has no locks: the turn is always free there.
    """
    if isinstance(folder, StorePath):
        yield True
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock_of(folder).open("a") as lock:
        if not _is_locked_by_us(lock, fcntl.LOCK_EX):
            yield False
            return
        _write(lock, json.dumps({"task": task, "since": time.time()}))
        try:
            yield True
        finally:
            _write(lock, "")


def holder_of(folder: DataPath) -> str | None:
    """Return the holder of a folder's turn, in words; None for a free turn."""
    if isinstance(folder, StorePath):
        return None
    path = _lock_of(folder)
    try:
        with path.open("a") as lock:
            if _is_locked_by_us(lock, fcntl.LOCK_SH):
                return None
        noted = json.loads(regular_text(path))
        since = datetime.fromtimestamp(float(noted["since"]), UTC)
        return f"{noted['task']}, since {since:%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, TypeError, KeyError):
        return "another task"  # which has not written its name yet


class TurnTrigger(BaseTrigger):
    """Waits for a free turn, or until a moment.

    The event has ``until``, the moment, and ``holder``, the present holder of the turn, or None.
    """

    def __init__(self, folder: str, until: float, poll_s: float = POLL_S, log_every_s: float = LOG_EVERY_S) -> None:
        """Wait for the turn at ``folder`` until a moment, seconds since the epoch."""
        super().__init__()
        self._arguments: dict[str, Any] = {
            "folder": folder, "until": until, "poll_s": poll_s, "log_every_s": log_every_s,
        }  # fmt: skip

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class and arguments, for the waiting process."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, with a regular line in the task's log.

        The first look comes late: Airflow fails a task that goes on before the scheduler has seen it give its slot back
        ("the task instance's state attribute is running").
        """
        folder, until = Path(self._arguments["folder"]), self._arguments["until"]
        logged_at = -self._arguments["log_every_s"]
        await asyncio.sleep(min(self._arguments["poll_s"], max(until - time.time(), 0.0)))
        try:
            while (holder := await asyncio.to_thread(holder_of, folder)) is not None and time.time() < until:
                if time.monotonic() - logged_at >= self._arguments["log_every_s"]:
                    self.log.info("waits for its turn at %s: %s has it", folder, holder)
                    logged_at = time.monotonic()
                await asyncio.sleep(min(self._arguments["poll_s"], max(until - time.time(), 0.0)))
        except OSError as error:
            self.log.warning("the triggerer cannot read %s (%s): the task looks again in %g s", folder, error, _BLIND_S)
            holder = None
            await asyncio.sleep(min(_BLIND_S, max(until - time.time(), 0.0)))
        yield TriggerEvent({"holder": holder, "until": until})


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def _is_locked_by_us(lock: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(lock: TextIO, text: str) -> None:
    lock.truncate(0)
    lock.write(text)
    lock.flush()
