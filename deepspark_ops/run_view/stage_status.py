"""How far a stage of a run is and how it ended, in one small file of the run's folder: for whoever looks at the run."""

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

from caffe_import.files.regular_file import regular_text
from deepspark_ops.run_paths import RunPaths, write_text_whole

STATUS_VERSION: Final = 1
NO_MESSAGE: Final = "the task left no message; its log has its last lines"
"""Of a task that failed and has noted no end: nothing more is known."""
WRITE_EVERY_S: Final = 1.0
_WARNINGS_KEPT: Final = 10
_TEXT_KEPT: Final = 20_000
"""Characters of a message; a longer one is cut."""
_COUNT = re.compile(r"\b(\d[\d,]*)/(\d[\d,]*)\b")
Status = Literal["running", "finished", "failed", "skipped", "waiting"]
"""waiting: for a person's answer."""


@dataclass(frozen=True)
class StageStatus:
    """A stage as its task last noted it. A task that is killed notes no end.

    Attributes:
        stage: The task's id: ``check``, ``ingest``, ``train``, ``evaluate``, ``export``.
        status: How it stands.
        began: When it began, seconds since the epoch.
        time: When this was noted.
        text: Its last line that counts something, e.g. ``ingest train: shard 3/20 written``; else empty.
        done: Things done of ``total``, out of that line.
        total: None if nothing was counted.
        message: The error that it ended with, whole; empty otherwise.
        warnings: Its last lines of level WARNING, oldest first: when, and what.
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


class StatusFile:
    """Notes how a stage goes. Used by one thread. A file that cannot be written is no reason for a stage to fail."""

    def __init__(self, run_dir: Path, stage: str, *, clock: Callable[[], float] = time.time) -> None:
        """Note that ``stage`` begins; what an earlier try noted is gone."""
        self._path = RunPaths(run_dir).stage_status(stage)
        self._clock = clock
        self._status = StageStatus(stage, "running", clock(), clock())
        self._written = 0.0
        self._write()

    def line(self, level: int, text: str) -> None:
        """Take a line of the stage's output."""
        now = self._clock()
        if level >= logging.ERROR:
            return  # the last one comes back as the message
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


def counted(text: str) -> tuple[int, int] | None:
    """Return what a line says to be done, and of how many.

    Example:
        >>> counted("scored 3,000/10,000 samples")
        (3000, 10000)
    """
    match = _COUNT.search(text)
    return (int(match[1].replace(",", "")), int(match[2].replace(",", ""))) if match else None


def read_statuses(run_dir: Path) -> dict[str, StageStatus]:
    """Return what each stage of a run noted; a file that is damaged, or of another version, counts as missing."""
    found: dict[str, StageStatus] = {}
    for path in sorted(RunPaths(run_dir).stages.glob("*.status.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            status = _parsed(json.loads(regular_text(path)))
            found[status.stage] = status
    return found


def _parsed(fields: dict[str, Any]) -> StageStatus:
    if fields.pop("format_version") != STATUS_VERSION:
        msg = "another version"
        raise ValueError(msg)
    warnings = tuple((float(when), str(text)) for when, text in fields.pop("warnings"))
    return StageStatus(**fields, warnings=warnings)
