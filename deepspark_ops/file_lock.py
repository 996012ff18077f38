"""Locks between processes, on a file or on a folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deepspark_ops.errors import DeepSparkError

_POLL_S: Final = 0.02


@contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Yield True with a lock on a folder, without a lock file; yield False if another process holds the lock.

    A file system without locks on folders (NFS) yields True for all processes.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        is_free = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError:
            pass
        yield is_free
    finally:
        os.close(handle)


@contextmanager
def held_lock(path: Path, timeout_s: float, busy: DeepSparkError) -> Iterator[None]:
    """Hold a file's lock: a single process at a time, across machines with the same folder.

    The lock ends with the process. The holder may remove the file.

    Raises:
        DeepSparkError: ``busy``, if the lock was not free in ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with path.open("a") as handle:
            _await_lock(handle.fileno(), deadline, busy)
            # Another process opens a new file at the path if the last holder has removed this file.
            if _is_at(path, handle.fileno()):
                yield
                return


def _await_lock(handle: int, deadline: float, busy: DeepSparkError) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise busy from None
            time.sleep(_POLL_S)
        else:
            return


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
