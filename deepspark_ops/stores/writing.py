"""Writing files whole or not at all, on the local disk or as objects of a store, and removing them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from caffe_import.file_access.whole_file import write_whole
from deepspark_ops.stores.staging import staging
from deepspark_ops.stores.store_path import DataPath, StorePath


@contextmanager
def written_whole(path: DataPath, **options: Any) -> Iterator[Path]:
    """Yield a temporary local file; on success the file becomes ``path``.

    Args:
        path: Path, local or in a store.
        options: Options of ``whole_file.write_whole``, for a local path.

    Raises:
        OSError: The file cannot be written.
    """
    if not isinstance(path, StorePath):
        with write_whole(path, **options) as temporary:
            yield temporary
        return
    with local_output(path) as temporary:
        temporary.touch()
        yield temporary


def write_text(path: DataPath, text: str) -> None:
    """Write UTF-8 text by ``written_whole``; bytes of a file's name that are no UTF-8 stay as they are."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")


@contextmanager
def local_output(path: DataPath) -> Iterator[Path]:
    """Yield a path for a library's output, a file or a folder: ``path``, or for a store a local path.

    The files at the local path are sent at the end; after an error no file is sent.

    Raises:
        OSError: An object cannot be written.
    """
    if not isinstance(path, StorePath):
        yield path
        return
    with staging().scratch() as folder:
        local = folder / path.name
        yield local
        if local.is_file():
            path.put(local)
        for file in sorted(local.rglob("*")) if local.is_dir() else ():
            if file.is_file():
                (path / file.relative_to(local).as_posix()).put(file)


def remove_tree(path: DataPath) -> None:
    """Remove a file or a folder with all files, as far as possible."""
    if isinstance(path, StorePath):
        with suppress(OSError):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            for name in path.entries(is_deep=True):
                (path / name).unlink(missing_ok=True)
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
