"""What is said of a shard that could not be written: LMDB and HDF5 have words of their own for a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import DataPath

LITTLE_BYTES = 2**22
"""A disk with less than this cannot take what a shard writes at a time."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_KEPT = "what was there before is whole"


def write_trouble(path: DataPath, error: Exception) -> str:
    """Return one message with cause and remedy. Call it before anything that was written is removed.

    Args:
        path: The shard.
        error: Of LMDB, HDF5 or the file system.
    """
    folder = next(folder for folder in path.parents if folder.exists()) if isinstance(path, Path) else None
    free = None if folder is None else _free_bytes(folder)
    remedy = f"make room there, or give an output on another disk, and run it again: {_KEPT}"
    if is_no_room(error) or (free is not None and free < LITTLE_BYTES):
        left = "" if free is None else f", {size_text(free)} are free"
        return f"{path}: the disk is full{left}; {remedy}"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{path}: cannot write the shard: {reason}; a disk that is full or damaged answers so: {remedy}"


def is_no_room(error: Exception) -> bool:
    """Return whether an error says that there is no room; HDF5 says it inside its text."""
    return getattr(error, "errno", None) in _NO_ROOM or os.strerror(errno.ENOSPC) in str(error)


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
