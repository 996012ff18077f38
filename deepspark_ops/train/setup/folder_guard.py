"""Restores a run's folder if preparing or starting the run fails, or if nothing is left to train."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from caffe_import.file_access.regular_file import LIST_BYTES, regular_bytes
from deepspark_ops.run_paths import write_whole

_OWN_FILES = ("*.json", "*.prototxt", "*.txt", "sources/*")
"""Files that preparing a run writes."""


@contextmanager
def nothing_left_on_error(root: Path, earlier: Mapping[Path, bytes]) -> Iterator[Callable[[], None]]:
    """Restore a run's folder if the block fails: added files go, overwritten files come back.

    Args:
        root: The run's folder.
        earlier: ``prepared_files`` of the folder.

    Yields:
        A function to call when the run has begun; from then on all files stay.
    """
    names = {path.name for path in root.iterdir()} if root.is_dir() else set()
    was_there = root.is_dir()
    began: list[bool] = []
    try:
        yield lambda: began.append(True)
    except BaseException:
        if not began:
            _put_back(root, names if was_there else None, earlier)
        raise


def prepared_files(root: Path) -> dict[Path, bytes]:
    """Return path -> content of the files of a run's folder that preparing the run writes."""
    paths = [path for pattern in _OWN_FILES for path in root.glob(pattern)]
    return {path: regular_bytes(path, max_bytes=LIST_BYTES) for path in paths}


def _put_back(root: Path, names: Collection[str] | None, contents: Mapping[Path, bytes]) -> None:
    if names is None:
        shutil.rmtree(root, ignore_errors=True)
        return
    for path in list(root.iterdir()):
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    put_back(contents)


def put_back(contents: Mapping[Path, bytes]) -> None:
    """Write the files of ``prepared_files`` again where they have other content now."""
    for path, content in contents.items():
        if not path.is_file() or regular_bytes(path, max_bytes=LIST_BYTES) != content:
            with write_whole(path) as temporary:
                temporary.write_bytes(content)
