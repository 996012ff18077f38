"""An open LMDB environment per file and process, shared by all readers of the file.

The lmdb package refuses to open a path twice in a process, also in a forked child of a holder. So handles are
counted here by real path, and the child of a fork replaces an inherited handle.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import lmdb

from caffe_import.errors import DataSourceError


@dataclass
class _Handle:
    environment: lmdb.Environment
    users: int
    process: int


_handles: dict[str, _Handle] = {}
_lock = threading.Lock()


def acquire_environment(folder: Path) -> lmdb.Environment:
    """Return the process' read-only environment of data.mdb in ``folder``; give the environment back by ``release``.

    Thread-safe. Nothing is written and no lock file is made, so read-only media and several readers are allowed.

    Raises:
        DataSourceError: No data.mdb there, not an LMDB, or shorter than its own page count says. The last matters: a
            read past the end of a mapped file would kill the process.
    """
    key = str(folder.resolve())
    with _lock:
        handle = _handles.get(key)
        if handle is not None and handle.process != os.getpid():
            handle.environment.close()
            handle = None
        if handle is None:
            handle = _Handle(_open(folder), 0, os.getpid())
            _handles[key] = handle
        handle.users += 1
        return handle.environment


def release_environment(folder: Path) -> None:
    """Give back an environment; the last return closes the file. In a forked child the parent's counts go."""
    key = str(folder.resolve())
    with _lock:
        handle = _handles.get(key)
        if handle is None or handle.process != os.getpid():
            return
        handle.users -= 1
        if handle.users == 0:
            handle.environment.close()
            del _handles[key]


def _open(folder: Path) -> lmdb.Environment:
    data = folder / "data.mdb"
    if not data.is_file():
        msg = f"{folder}: no LMDB here (data.mdb is missing)"
        raise DataSourceError(msg)
    try:
        environment = lmdb.open(str(folder), readonly=True, lock=False, readahead=True, max_dbs=0)
    except lmdb.Error as error:
        msg = f"{folder}: not a readable LMDB: {error}; the file has {data.stat().st_size:,} bytes"
        raise DataSourceError(msg) from error
    needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    n_bytes = data.stat().st_size
    if n_bytes < needed:
        environment.close()
        msg = f"{folder}: data.mdb is cut short: {n_bytes:,} bytes, its header says {needed:,}; copy it again"
        raise DataSourceError(msg)
    return environment
