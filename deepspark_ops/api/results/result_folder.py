"""A stage's output folder, as a frozen object."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.api.results.card import HasCard
from deepspark_ops.errors import ConfigError
from deepspark_ops.frozen_model import first_problem
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path

StrPath: TypeAlias = str | os.PathLike[str]


def absolute_path(path: StrPath | StorePath) -> DataPath:
    """Return a path from the present folder; the address of a store does not change."""
    if isinstance(path, ResultFolder):
        return path.folder
    return Path.cwd() / data_path(path if isinstance(path, StorePath) else os.fspath(path))


def absolute_local_path(path: StrPath | StorePath, why: str = "nets, solvers and weights are") -> Path:
    """Return a path of the disk from the present folder; ``why`` starts the reason of a refusal.

    Raises:
        ConfigError: It is an address of a store.
    """
    absolute = absolute_path(path)
    if isinstance(absolute, StorePath):
        msg = f"{path}: {why} on a disk, not in a store; copy it to a disk"
        raise ConfigError(msg)
    return absolute


def local_text(path: DataPath) -> str:
    """Return the path as a text for functions that open files, as ``__fspath__`` does.

    Raises:
        TypeError: It is an address of a store, which ``open`` would look for on the disk.
    """
    if isinstance(path, StorePath):
        msg = f"{path} is in a store and no path of the disk; a function that reads addresses takes str(...) of it"
        raise TypeError(msg)
    return str(path)


@dataclass(frozen=True, init=False, repr=False)
class ResultFolder(HasCard):
    """A stage's output folder; functions that take a path of the folder take the object, too.

    Attributes:
        folder: The folder, absolute.
    """

    folder: Path
    kind: ClassVar[str] = "result"
    written_by: ClassVar[str] = "a stage"
    _marks: ClassVar[tuple[str, ...]] = ()
    """Names below a folder; the folder is of the kind if one of the names exists."""

    def __init__(self, folder: StrPath | StorePath) -> None:
        """Refer to a folder, without a read.

        Raises:
            ConfigError: It is no folder of this kind.
        """
        path = absolute_path(folder)
        object.__setattr__(self, "folder", path)
        if not self.is_at(path):
            problem = "no such folder" if not path.is_dir() else f"the folder holds no {self.kind}"
            named = path if isinstance(folder, ResultFolder) else folder
            msg = f"folder={named}: {problem}; allowed: a folder that {self.written_by} wrote"
            raise ConfigError(msg)

    def __fspath__(self) -> str:
        """Return the folder's path; TypeError for a folder in a store."""
        return local_text(self.folder)

    def __repr__(self) -> str:
        """Return the kind and the folder."""
        return f"{type(self).__name__}({str(self.folder)!r})"

    @classmethod
    def is_at(cls, path: DataPath) -> bool:
        """Return whether a folder is of this kind, by the names of the files."""
        return any((path / mark).exists() for mark in cls._marks)


class LocalFolder(ResultFolder):
    """A result on the disk, never in a store."""

    folder: Path

    def __init__(self, folder: StrPath | StorePath) -> None:
        """Refer to a folder, without a read.

        Raises:
            ConfigError: It is no folder of this kind, or in a store.
        """
        super().__init__(absolute_local_path(folder, f"a {self.kind} is"))

    @classmethod
    def is_at(cls, path: DataPath) -> bool:
        """Return whether a folder is of this kind, by the names of the files; False for a folder in a store."""
        return isinstance(path, Path) and super().is_at(path)


Content = TypeVar("Content", bound=BaseModel)


def read_content(path: Path, model: type[Content], *, remedy: str) -> Content:
    """Return the content of a result's JSON file.

    Raises:
        ConfigError: The file is damaged; the message ends with ``remedy``.
    """
    try:
        return model.model_validate_json(regular_bytes(path))
    except ValidationError as error:
        msg = f"{path}: damaged ({first_problem(error)}); {remedy}"
        raise ConfigError(msg) from None
