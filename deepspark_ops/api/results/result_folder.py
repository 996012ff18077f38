"""A folder that a stage wrote, as a frozen object."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from deepspark_ops.errors import ConfigError
from deepspark_ops.stores.store_path import StorePath, data_path

StrPath: TypeAlias = str | os.PathLike[str]


def absolute_path(path: StrPath) -> Path:
    """Return a path from the present folder; the address of a store does not change."""
    as_path = data_path(os.fspath(path))
    return as_path if isinstance(as_path, StorePath) else Path.cwd() / as_path


@dataclass(frozen=True, init=False)
class ResultFolder:
    """A folder that a stage wrote; wherever a path of it is asked for, the object itself will do.

    Attributes:
        folder: The folder, absolute.
    """

    folder: Path
    kind: ClassVar[str] = "result"
    written_by: ClassVar[str] = "a stage"

    def __init__(self, folder: StrPath) -> None:
        """Refer to a folder; nothing of it is read yet.

        Raises:
            ConfigError: It is no folder of this kind.
        """
        path = absolute_path(folder)
        object.__setattr__(self, "folder", path)
        if not self.is_at(path):
            problem = "no such folder" if not path.is_dir() else f"the folder holds no {self.kind}"
            msg = f"folder={folder}: {problem}; allowed: a folder that {self.written_by} wrote"
            raise ConfigError(msg)

    def __fspath__(self) -> str:
        """Return the folder's path."""
        return str(self.folder)

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Return whether a folder is of this kind, by the names of its files."""
        return path.is_dir()
