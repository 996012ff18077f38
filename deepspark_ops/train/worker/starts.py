"""The number of a worker's starts since its last progress. Standard library only.

A preempted executor, or a crash once a day, must not use up ``worker_tries``: starts count from the last process with
an exchange on. The driver sees exchanges and writes the numbers to a file. Each worker writes its starts to another
file.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

WRITE_EVERY_S: Final = 1.0
_FOLDER: Final = "starts"
_PROGRESS: Final = "exchanges.json"
_END: Final = "ended"


class ExchangesFile:
    """The ended exchanges of each worker, for the next starts of workers. Used by a single thread of the driver."""

    def __init__(self, work: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        """Remove the notes of an earlier driver's workers in ``work``, the run's scratch folder."""
        self._path = work / _FOLDER / _PROGRESS
        self._now = now
        self._written: tuple[int, ...] = ()
        self._due = float("-inf")
        self._has_ended = False
        shutil.rmtree(self._path.parent, ignore_errors=True)

    def see(self, exchanges: Sequence[int], *, is_end: bool = False) -> None:
        """Take each worker's number of ended exchanges; writes the numbers at most once in ``WRITE_EVERY_S``.

        Args:
            exchanges: By worker.
            is_end: Whether the run has ended: later starts of workers have nothing to do.
        """
        if is_end and not self._has_ended:
            with suppress(OSError):
                (self._path.parent / _END).touch()
                self._has_ended = True
        if tuple(exchanges) == self._written or self._now() < self._due:
            return
        with suppress(OSError):  # a run must not fail for want of the file
            if self._path.parent.is_dir() or any(exchanges):  # no worker has started before
                self._path.parent.mkdir(exist_ok=True)  # workers on other hosts may have notes of their own
                _write(self._path, list(exchanges))
                self._written, self._due = tuple(exchanges), self._now() + WRITE_EVERY_S


def has_ended(work: Path) -> bool:
    """Return whether the driver has noted the end of the run."""
    return (work / _FOLDER / _END).exists()


def has_start(work: Path) -> bool:
    """Return whether any worker has noted a start or exchanged; a worker of another host may have its notes there."""
    return any((work / _FOLDER).glob("*.json"))


def note_start(work: Path, worker: int, attempt: int) -> int:
    """Note a start of a worker; return the starts since the worker's last progress, see ``starts_since_progress``.

    Args:
        work: The run's scratch folder.
        worker: The worker's id.
        attempt: Spark's count of earlier starts of the task; used if the note cannot be written.
    """
    starts = starts_since_progress(work, worker, attempt) + 1
    with suppress(OSError):
        path = _path(work, worker)
        for folder in (work, path.parent):  # but not a run's folder that was removed while the run trained
            folder.mkdir(exist_ok=True)
        _write(path, [starts, _exchanges(work, worker)])
        return starts
    return attempt + 1


def starts_since_progress(work: Path, worker: int, attempt: int) -> int:
    """Return the starts from the last process with an exchange on; all starts if no process has exchanged.

    Args:
        work: As ``note_start``.
        worker: Likewise.
        attempt: Likewise.
    """
    noted = _read(_path(work, worker))
    if not isinstance(noted, list):
        return 0 if work.is_dir() else attempt
    starts, exchanges = noted
    return 1 if _exchanges(work, worker) > exchanges else int(starts)


def _exchanges(work: Path, worker: int) -> int:
    counts = _read(work / _FOLDER / _PROGRESS)
    return int(counts[worker]) if isinstance(counts, list) else 0


def _write(path: Path, values: list[int]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(values), encoding="utf-8")
    temporary.replace(path)


def _read(path: Path) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def _path(work: Path, worker: int) -> Path:
    return work / _FOLDER / f"worker_{worker}.json"
