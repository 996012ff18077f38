"""A model's history: who changed what, when and why. Appended only; what moved production is bound to the pointer.

A line that moves production is written before the pointer and carries the number of the change, ``change``. The pointer
carries the number of the last change that took effect, so a line whose pointer was never written does not count, and of
two lines with one number the later counts.
"""

from __future__ import annotations

import json
import os
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from caffe_import.files.regular_file import open_regular, regular_text
from deepspark_ops.errors import DataError
from deepspark_ops.registry.model_folder import ModelFolder

JOURNAL_VERSION: Final = 2
Action = Literal["promoted", "rolled back", "kept", "adopted", "removed"]


class HistoryEntry(BaseModel):
    """One line.

    Attributes:
        format_version: Version of this form; 1 has no ``train_digest``.
        at: UTC, ISO 8601, whole seconds.
        who: Airflow's user, the kind of a run that nobody triggered, or the user of the command.
        action: ``promoted``, ``rolled back``; ``kept``: a candidate stayed out; ``adopted``: a bundle of release 0.2.0
            got its number; ``removed``: its bundle was removed, since more than ``keep`` were there.
        version: What is in production after it, or what was adopted or removed; None for a candidate that stayed out.
        previous: What was in production before; None if nothing was, or nothing moved.
        reason: The decision's sentence, or what a person gave.
        comment: What a person added.
        run: Name of the run's folder; None where no run has a part.
        change: Number of the change of production; None where nothing moved.
        candidate: The candidate's value of the metric.
        production: That of the model that was in production.
        gain: How much better the candidate was.
        p_value: One-sided.
        train_digest: Of the training set of a candidate that stayed out, ``sha256:<hex>``; None if it is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1, 2]
    at: str
    who: str
    action: Action
    version: str | None
    previous: str | None
    reason: str
    comment: str | None = None
    run: str | None = None
    change: int | None = None
    candidate: float | None = None
    production: float | None = None
    gain: float | None = None
    p_value: float | None = None
    train_digest: str | None = None


def append_entry(model: ModelFolder, entry: HistoryEntry) -> None:
    """Append a line and bring it to the disk. The caller holds the model's lock."""
    line = entry.model_dump_json() + "\n"
    with model.journal.open("ab") as handle:
        if handle.tell() and not _ends_with_newline(model):
            line = "\n" + line  # a line that a crash cut off stays by itself
        handle.write(line.encode())
        handle.flush()
        os.fsync(handle.fileno())


def read_history(model: ModelFolder, last_change: int) -> tuple[HistoryEntry, ...]:
    """Return what happened, oldest first.

    Args:
        model: Whose.
        last_change: Number of the last change that took effect, as the pointer says.

    Raises:
        DataError: A whole line is not of this form.
    """
    if not model.journal.is_file():
        return ()
    lines = regular_text(model.journal).splitlines()
    entries = [entry for number, line in enumerate(lines, 1) if (entry := _parse(model, number, line))]
    last_of_change = {entry.change: at for at, entry in enumerate(entries)}
    return tuple(
        entry
        for at, entry in enumerate(entries)
        if entry.change is None or (entry.change <= last_change and last_of_change[entry.change] == at)
    )


def _parse(model: ModelFolder, number: int, line: str) -> HistoryEntry | None:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return None  # cut off by a crash: what it told never took effect
    try:
        return HistoryEntry.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "line"
        msg = f"{model.journal}:{number}: {place}: {first['msg']}; restore the line"
        raise DataError(msg) from error


def _ends_with_newline(model: ModelFolder) -> bool:
    with open_regular(model.journal) as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
