"""Messages about a shard that could not be written: LMDB and HDF5 have other texts for a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import DataPath

LITTLE_BYTES = 2**22
"""A disk with less room cannot take a write of a shard."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_UNCHANGED = "what was there before is whole"


def write_trouble(path: DataPath, error: Exception) -> str:
    """Return a message with cause and remedy. Call the function before written files are removed.

    Args:
        path: The shard.
        error: Error of LMDB, HDF5 or the file system.
    """
    folder = next(folder for folder in path.parents if folder.exists()) if isinstance(path, Path) else None
    free = None if folder is None else _free_bytes(folder)
    remedy = f"make room there, or give an output on another disk, and run it again: {_UNCHANGED}"
    if is_no_room(error) or (free is not None and free < LITTLE_BYTES):
        free_text = "" if free is None else f", {size_text(free)} are free"
        return f"{path}: the disk is full{free_text}; {remedy}"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{path}: cannot write the shard: {reason}; a disk that is full or damaged answers so: {remedy}"


def is_no_room(error: Exception) -> bool:
    """Return whether an error is due to a full disk; HDF5 has the reason only in the text."""
    return getattr(error, "errno", None) in _NO_ROOM or os.strerror(errno.ENOSPC) in str(error)


def _free_bytes(folder: Path) -> int | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize
