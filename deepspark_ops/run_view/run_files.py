"""Which files of a run a person may fetch: its snapshots and its bundle, and nothing beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepspark_ops.run_paths import RunPaths

_SNAPSHOT_FILE: Final = re.compile(r"(?P<stem>.+_iter_\d+)\.(?P<kind>caffemodel|solverstate)(?P<form>\.h5)?")


@dataclass(frozen=True)
class RunFile:
    """A file of a run.

    Attributes:
        name: Path below the run's folder, with ``/``.
        kind: What it is, in a word or by its own name.
        bytes: Its size.
    """

    name: str
    kind: str
    bytes: int


def snapshot_files(run_dir: Path, weights: str) -> list[RunFile]:
    """Return the .caffemodel and the .solverstate of a snapshot, as far as they are there.

    Args:
        run_dir: The run's folder.
        weights: File name of the snapshot's weights.
    """
    match = _SNAPSHOT_FILE.fullmatch(weights)
    if match is None or "/" in weights:
        return []
    folder = RunPaths(run_dir).snapshots
    found = []
    for kind in ("caffemodel", "solverstate"):
        path = folder / f"{match['stem']}.{kind}{match['form'] or ''}"
        if path.is_file():
            found.append(RunFile(f"{folder.name}/{path.name}", kind, path.stat().st_size))
    return found


def bundle_files(run_dir: Path) -> list[RunFile]:
    """Return the files of a run's bundle, those of its top folder first; none without a bundle."""
    bundle = RunPaths(run_dir).bundle
    inside = sorted((path.relative_to(bundle) for path in bundle.rglob("*")), key=lambda path: (len(path.parts), path))
    found = []
    for path in inside:
        name = f"{bundle.name}/{path.as_posix()}"
        if find_file(run_dir, name) is not None:
            found.append(RunFile(name, path.as_posix(), (bundle / path).stat().st_size))
    return found


def find_file(run_dir: Path, name: str) -> Path | None:
    """Return a file that may be fetched; None for every other name.

    Args:
        run_dir: The run's folder.
        name: Path below it, as ``RunFile.name``; what a stranger may have written.
    """
    folder, _, rest = name.partition("/")
    run = RunPaths(run_dir.resolve())
    place = {run.snapshots.name: run.snapshots, run.bundle.name: run.bundle}.get(folder)
    if place is None or not rest or "\0" in rest:
        return None
    if place == run.snapshots and _SNAPSHOT_FILE.fullmatch(rest) is None:
        return None
    path = (place / rest).resolve()
    return path if path.is_relative_to(place) and path.is_file() else None
