"""Files of a run's snapshots, for download."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepspark_ops.run_paths import RunPaths

_SNAPSHOT_FILE: Final = re.compile(r"(?P<stem>[^/\0]+_iter_\d+)\.(?P<kind>caffemodel|solverstate)(?P<form>\.h5)?")


@dataclass(frozen=True)
class RunFile:
    """A file of a snapshot.

    Attributes:
        name: Path below the run's folder, with ``/``.
        kind: ``caffemodel`` or ``solverstate``.
        bytes: Size in bytes.
    """

    name: str
    kind: str
    bytes: int


def snapshot_files(run_dir: Path, weights: str) -> list[RunFile]:
    """Return the existing .caffemodel and .solverstate of a snapshot, by the file name of its weights."""
    match = _SNAPSHOT_FILE.fullmatch(weights)
    if match is None:
        return []
    folder = RunPaths(run_dir).snapshots
    existing_files = []
    for kind in ("caffemodel", "solverstate"):
        path = folder / f"{match['stem']}.{kind}{match['form'] or ''}"
        if path.is_file():
            existing_files.append(RunFile(f"{folder.name}/{path.name}", kind, path.stat().st_size))
    return existing_files


def find_snapshot_file(run_dir: Path, name: str) -> Path | None:
    """Return a snapshot's .caffemodel or .solverstate; None for every other name, and for a link out of the folder.

    A stranger may have written the name.
    """
    folder = RunPaths(run_dir.resolve()).snapshots
    if _SNAPSHOT_FILE.fullmatch(name) is None:
        return None
    path = (folder / name).resolve()
    return path if path.is_relative_to(folder) and path.is_file() else None
