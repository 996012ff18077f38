"""Folders in ``versions/`` that are no version: a process was killed while it wrote or removed a version."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import is_dataset
from deepspark_ops.stores.store_path import DataPath, StorePath
from deepspark_ops.stores.writing import remove_tree

ABANDONED_S: Final = 86_400.0
"""Age of the last change. A store has no lock: another host may be writing the version."""
_NAME: Final = re.compile(r"[0-9a-f]{12}|\..*\.tmp|\.[0-9a-f]{12}\.removed")


def remove_unfinished_versions(dataset: DataPath) -> None:
    """Remove folders in ``versions/`` that have no ``dataset.json`` and did not change for a day.

    Raises:
        OSError: A store does not answer.
    """
    folder = DatasetPaths(dataset).versions
    for path in folder.iterdir() if folder.is_dir() else ():
        is_unfinished = path.name.startswith(".") or not is_dataset(path)
        if _NAME.fullmatch(path.name) and is_unfinished and 0 < _last_change(path) < time.time() - ABANDONED_S:
            remove_tree(path)


def _last_change(folder: DataPath) -> float:
    """Return the last change of an object or of a folder, seconds since the epoch; 0 if the store does not say."""
    if isinstance(folder, StorePath):
        return max((entry.changed_ns for entry in folder.entries(is_deep=True).values()), default=0) / 1e9
    # Links of shards have the times of the shards.
    folders: list[Path] = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    return max(path.stat().st_mtime for path in folders)
