"""A run's folder on a host that does not see the driver's folder: a copy of the small files that come with the task.

Standard library only: the copy comes before the count of starts, and the count before heavy imports.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FILES: Final = "files"
MARK: Final = "mark"
"""Keys of a task's settings: name -> content of the run's files, and the content of the mark."""
HIDDEN_RUN: Final = "hidden_run_dir"
"""Key of the settings on a host with a copy: the run's folder on the driver's disk."""
_MARK_FILE: Final = "folder.mark"
_MOVED: Final = (".json", ".prototxt")
"""Files that name paths of the run's folder."""


def write_mark(work: Path) -> str:
    """Write a random mark into the run's scratch folder, and return the mark: a host that reads it sees the folder."""
    mark = secrets.token_hex(16)
    work.mkdir(exist_ok=True)
    (work / _MARK_FILE).write_text(mark, encoding="utf-8")
    return mark


def with_folder_on_host(settings: Mapping[str, Any], parent: Path) -> Mapping[str, Any]:
    """Return a task's settings with paths that exist on this host; writes a copy of the run's files if needed.

    Args:
        settings: The task's settings from the driver; without files the driver is on this host.
        parent: Folder of this host for the copy, the executor's.
    """
    if FILES not in settings or _sees_folder(Path(settings["work"]), settings[MARK]):
        return settings
    root = Path(settings["run_dir"])
    copy = copy_run(root, settings[FILES], parent / f"deepspark-run-{settings[MARK]}")
    (copy / "work").mkdir(exist_ok=True)
    paths = {"run_dir": str(copy), "work": str(copy / "work"), HIDDEN_RUN: str(root)}
    state = settings["start_state"]
    if state and (name := str(Path(state).relative_to(root))) in settings[FILES]:
        paths["start_state"] = str(copy / name)
    return {**settings, **paths}


def copy_run(root: Path, files: Mapping[str, bytes], copy: Path) -> Path:
    """Write files of a run's folder into a copy, with paths of the copy, and return the copy.

    Args:
        root: The run's folder on the driver's disk.
        files: Name -> content.
        copy: The copy's folder; another process may write the same copy now.
    """
    old_start, new_start = (f'"{folder}/'.encode() for folder in (root, copy))
    for name, content in files.items():
        _write(copy / name, content.replace(old_start, new_start) if name.endswith(_MOVED) else content)
    return copy


def _sees_folder(work: Path, mark: str) -> bool:
    with suppress(OSError):
        return (work / _MARK_FILE).read_text(encoding="utf-8") == mark
    return False


def _write(path: Path, content: bytes) -> None:
    """Write a file whole; another worker of the executor may write the same content now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
