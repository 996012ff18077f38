"""Notes of a worker's process on a fatal signal of its own: the signal, and the data being read.

The reader maps an LMDB into memory. Reading beyond the end of a truncated file raises SIGBUS, and Python cannot turn
SIGBUS into an error. Python's ``faulthandler`` can write a few words before the process ends. The worker's next start
reads these words.
"""

from __future__ import annotations

import faulthandler
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

FAULTS: Final = "faults"
"""Folder of the notes in the run's scratch folder."""
_FATAL: Final = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_BUS_ERROR: Final = "Bus error"


def note_faults(work: Path, worker: int) -> None:
    """Have this process write a note on SIGBUS, SIGSEGV, SIGFPE, SIGILL or SIGABRT; once in a process.

    Args:
        work: The run's scratch folder.
        worker: Id of this process' worker.
    """
    with suppress(OSError):  # a run must not fail for want of the note
        path = _path(work, worker, "fault")
        _make_folder(work)
        faulthandler.enable(path.open("w", encoding="utf-8"))  # which keeps the file


def note_reads(work: Path, worker: int, reads: Iterable[str]) -> None:
    """Note the data that a worker's process reads."""
    with suppress(OSError):
        path = _path(work, worker, "reads")
        _make_folder(work)
        path.write_text(", ".join(dict.fromkeys(reads)), encoding="utf-8")


def note_files(work: Path, worker: int) -> tuple[Path, Path]:
    """Return the two files of a worker's notes; the files may not exist."""
    return _path(work, worker, "fault"), _path(work, worker, "reads")


def last_fault(work: Path, worker: int) -> str:
    """Return the end of the worker's last process, for a text after "ended by"; empty without a note."""
    fault = _FATAL.search(_text(work, worker, "fault"))
    if fault is None:
        return ""
    reads = _text(work, worker, "reads") or "no data yet"
    if fault[1] == _BUS_ERROR:
        return (
            f"a bus error (SIGBUS) while it read {reads}: a file of it was cut short meanwhile, or its disk fails;"
            " make the data anew"
        )
    return f'"{fault[1]}", a crash in compiled code, while it read {reads}'


def _make_folder(work: Path) -> None:
    """Make the folder of the notes, but not a run's folder removed during the training."""
    for folder in (work, work / FAULTS):
        folder.mkdir(exist_ok=True)


def _path(work: Path, worker: int, kind: str) -> Path:
    return work / FAULTS / f"worker_{worker}.{kind}"


def _text(work: Path, worker: int, kind: str) -> str:
    with suppress(OSError):
        return _path(work, worker, kind).read_text(encoding="utf-8", errors="replace")
    return ""
