"""Runs and datasets below a home, with sizes and last changes. Links are never followed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from deepspark_ops.errors import ConfigError
from deepspark_ops.run_paths import RunPaths

RUNS: Final = "runs"
DATASETS: Final = "datasets"
Kind = Literal["run", "dataset"]


@dataclass(frozen=True)
class Stored:
    """Folder of a run or a dataset.

    Attributes:
        kind: ``run`` or ``dataset``.
        path: Absolute path, without links below the home.
        n_bytes: Bytes that a removal frees: files without hard links in other folders.
        changed: Last change of a file in the folder, seconds since the epoch.
    """

    kind: Kind
    path: Path
    n_bytes: int
    changed: float


def find_runs(home: Path) -> list[Stored]:
    """Return all runs: ``runs/<DAG>/<run>``, and ``runs/<run>`` of the command.

    Raises:
        ConfigError: ``runs`` is a link.
    """
    return [_measured("run", path) for path in run_folders(home)]


def run_folders(home: Path) -> list[Path]:
    """Return the folders of all runs, without reading the runs' files.

    Raises:
        ConfigError: ``runs`` is a link.
    """
    folders: list[Path] = []
    for path in _folders(_own_folder(home, RUNS)):
        folders += [path] if _is_run(path) else [run for run in _folders(path) if _is_run(run)]
    return folders


def find_datasets(home: Path) -> list[Stored]:
    """Return all datasets, ``datasets/<dataset>``.

    Raises:
        ConfigError: ``datasets`` is a link.
    """
    return [_measured("dataset", path) for path in _folders(_own_folder(home, DATASETS))]


def last_change(folder: Path) -> float:
    """Return the last change of a file in a folder, seconds since the epoch."""
    return _measured("run", folder).changed


def _own_folder(home: Path, name: str) -> Path:
    folder = home / name
    if folder.is_symlink():
        msg = (
            f"{folder} is a link to {folder.readlink()}; nothing behind a link is removed. Give the folder that really "
            f"holds {RUNS}/ and {DATASETS}/ (DEEPSPARK_HOME, or HOME of the command)"
        )
        raise ConfigError(msg)
    return folder


def _is_run(path: Path) -> bool:
    run = RunPaths(path)
    return run.config.is_file() or run.stages.is_dir() or run.events.is_file()


def _folders(parent: Path) -> Iterator[Path]:
    """Yield the visible folders in ``parent`` by name, without links; yield nothing if ``parent`` does not exist."""
    if not parent.is_dir():
        return
    with os.scandir(parent) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    yield from (parent / name for name in sorted(names) if not name.startswith("."))


def _measured(kind: Kind, folder: Path) -> Stored:
    n_bytes, changes = 0, []
    links: Counter[tuple[int, int]] = Counter()
    own_index = RunPaths(folder).index
    for parent, _, files in os.walk(folder):  # os.walk follows no links
        for path in (Path(parent, name) for name in files):
            try:
                status = path.lstat()
            except FileNotFoundError:  # a scratch file was removed meanwhile
                continue
            links[status.st_dev, status.st_ino] += 1
            n_bytes += status.st_size if links[status.st_dev, status.st_ino] == status.st_nlink else 0
            if path != own_index:  # pages write the index without changing the run
                changes.append(status.st_mtime)
    return Stored(kind, folder, n_bytes, max(changes, default=folder.lstat().st_mtime))
