"""Progress and end of a stage, in a small file of the run's folder."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.run_paths import RunPaths, write_text_whole

STATUS_VERSION: Final = 2
_READ_VERSIONS: Final = (1, 2)
"""Version 1 has no task."""
NO_MESSAGE: Final = "the log of the task has the reason"
"""Message for a failed task without a noted end."""
WRITE_EVERY_S: Final = 1.0
_WARNINGS_KEPT: Final = 10
_TEXT_KEPT: Final = 20_000
"""Characters of a message; a longer message is cut."""
_COUNT = re.compile(r"\b(\d[\d,]*)/(\d[\d,]*)\b")
Status = Literal["running", "finished", "failed", "skipped", "waiting"]
"""waiting: for what its message says, without a message for a person's answer."""


@dataclass(frozen=True)
class StageStatus:
    """Status of a stage, as its task noted it last. A killed task notes no end.

    Attributes:
        stage: Word of the stage: ``check``, ``ingest``, ``train``, ``evaluate``, ``export``.
        status: State of the stage.
        began: Time of the start, seconds since the epoch.
        time: Time of the note, seconds since the epoch.
        text: Last line with a count, e.g. ``ingest train: shard 3/20 written``; else empty.
        done: Finished items of ``total``, from ``text``.
        total: Number of items; None without a count.
        message: Error message of a failed stage, whole; else empty.
        warnings: Last lines of level WARNING, oldest first: time and text.
        task: Airflow's id of the task; empty outside Airflow.
        map_index: Airflow's index of a mapped task; -1 for any other task.
    """

    stage: str
    status: Status
    began: float
    time: float
    text: str = ""
    done: int | None = None
    total: int | None = None
    message: str = ""
    warnings: tuple[tuple[float, str], ...] = ()
    task: str = ""
    map_index: int = -1


class StatusFile:
    """Notes the progress of a stage. Used by one thread. A stage does not fail if its file cannot be written."""

    def __init__(
        self, run_dir: Path, stage: str, *, task: str = "", map_index: int = -1, clock: Callable[[], float] = time.time
    ) -> None:
        """Note the start of ``stage`` in an Airflow task, and drop notes of an earlier try."""
        self._path = RunPaths(run_dir).stage_status(stage)
        self._clock = clock
        self._status = StageStatus(stage, "running", clock(), clock(), task=task, map_index=map_index)
        self._written = 0.0
        self._write()

    def line(self, level: int, text: str) -> None:
        """Take a line of the stage's output."""
        now = self._clock()
        if level >= logging.ERROR:
            return  # the last line is repeated as the message
        if level >= logging.WARNING:
            warnings = (*self._status.warnings, (round(now, 3), text[:_TEXT_KEPT]))[-_WARNINGS_KEPT:]
            self._status = replace(self._status, warnings=warnings)
        elif count := counted(text):
            self._status = replace(self._status, text=text, done=count[0], total=count[1])
        else:
            return
        if now - self._written >= WRITE_EVERY_S:
            self._write()

    def end(self, status: Status, message: str = "") -> None:
        """Note the stage's end."""
        self._status = replace(self._status, status=status, message=message[:_TEXT_KEPT])
        self._write()

    def _write(self) -> None:
        self._written = self._clock()
        self._status = replace(self._status, time=self._written)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"format_version": STATUS_VERSION, **asdict(self._status)}, indent=1)
            write_text_whole(self._path, text + "\n")


def note_failure(run_dir: Path, stage: str, message: str, *, task: str, map_index: int = -1) -> None:
    """Note the failure of a task before its stage began, or in the folder of another task's run.

    A note with the same message, or of another mapped task, stays. Beside the note of a task of another id, the stage
    of the failure is ``<stage>.<task>``.
    """
    statuses = read_statuses(run_dir)
    if (status := statuses.get(stage)) is not None and status.task not in ("", task):
        stage = f"{stage}.{task}"
        status = statuses.get(stage)
    is_others = status is not None and status.task and (status.task, status.map_index) != (task, map_index)
    is_noted = status is not None and (status.status, status.message) == ("failed", message[:_TEXT_KEPT])
    if not is_others and not is_noted:
        StatusFile(run_dir, stage, task=task, map_index=map_index).end("failed", message)


def ended_text(stage: str) -> str:
    """Return the message of a stage that its task ended, which is no reason."""
    return f"stage {stage} was ended: its task received SIGTERM"


def counted(text: str) -> tuple[int, int] | None:
    """Return what a line says to be done, and of how many.

    Example:
        >>> counted("scored 3,000/10,000 samples")
        (3000, 10000)
    """
    match = _COUNT.search(text)
    return (int(match[1].replace(",", "")), int(match[2].replace(",", ""))) if match else None


def read_statuses(run_dir: Path) -> dict[str, StageStatus]:
    """Return the status of each stage of a run; a damaged file, or a file of another version, counts as missing."""
    statuses: dict[str, StageStatus] = {}
    for path in sorted(RunPaths(run_dir).stages.glob("*.status.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            status = _parsed(json.loads(regular_text(path)))
            statuses[status.stage] = status
    return statuses


def _parsed(fields: dict[str, Any]) -> StageStatus:
    if fields.pop("format_version") not in _READ_VERSIONS:
        msg = "another version"
        raise ValueError(msg)
    warnings = tuple((float(when), str(text)) for when, text in fields.pop("warnings"))
    return StageStatus(**fields, warnings=warnings)
