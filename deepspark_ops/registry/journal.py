"""A model's history: author, time and reason of each change. Lines are only appended.

The line of a change of production is written before the pointer, with the number of the change, ``change``. The pointer
has the number of the last completed change. So a line without a pointer does not count, and of two lines with the
same number the later line counts.
"""

from __future__ import annotations

import json
import os
from typing import Final, Literal

from pydantic import ValidationError

from caffe_import.file_access.regular_file import open_regular, regular_text
from deepspark_ops.errors import DataError
from deepspark_ops.frozen_model import FrozenModel, first_problem
from deepspark_ops.registry.model_folder import ModelFolder

JOURNAL_VERSION: Final = 2
Action = Literal["promoted", "rolled back", "kept", "adopted", "removed"]


class HistoryEntry(FrozenModel):
    """One line.

    Attributes:
        format_version: Version of the line; 1 lacks ``train_digest``.
        at: UTC, ISO 8601, whole seconds.
        who: Airflow's user, the kind of a scheduled run, or the user of the command.
        action: ``promoted``, ``rolled back``; ``kept``: a candidate was rejected; ``adopted``: a bundle of release
            0.2.0 got its number; ``removed``: retention removed the bundle, because more than ``keep`` existed.
        version: Version in production after the change, or the adopted or removed version; None for a rejected
            candidate.
        previous: Version in production before the change; None without such a version, or without a change.
        reason: Reason of the decision, or of a person.
        comment: Comment of a person.
        run: Name of the run's folder; None without a run.
        change: Number of the change of production; None without a change.
        candidate: The candidate's value of the metric.
        production: The value of the model in production.
        gain: Gain of the candidate.
        p_value: One-sided p-value.
        train_digest: Digest of the training set of a rejected candidate, ``sha256:<hex>``; None if unknown.
    """

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
    """Append a line and sync the file. The caller holds the model's lock."""
    line = entry.model_dump_json() + "\n"
    with model.journal.open("ab") as handle:
        if handle.tell() and not _ends_with_newline(model):
            line = "\n" + line  # keeps a line that a crash cut off on a line by itself
        handle.write(line.encode())
        handle.flush()
        os.fsync(handle.fileno())


def read_history(model: ModelFolder, last_change: int) -> tuple[HistoryEntry, ...]:
    """Return the history, oldest first.

    Args:
        model: Folder of the model.
        last_change: Number of the last completed change, from the pointer.

    Raises:
        DataError: A complete line is no valid entry.
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
        return None  # cut off by a crash: the change never took effect
    try:
        return HistoryEntry.model_validate_json(line)
    except ValidationError as error:
        msg = f"{model.journal}:{number}: {first_problem(error, content_name='line')}; restore the line"
        raise DataError(msg) from error


def _ends_with_newline(model: ModelFolder) -> bool:
    with open_regular(model.journal) as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
