"""One driver per run folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepspark_ops.errors import ConfigError


@contextmanager
def sole_owner(run_dir: Path) -> Iterator[None]:
    """Hold the run's folder: two drivers in one folder would write over each other.

    Raises:
        ConfigError: Another process holds it.
    """
    was_there = run_dir.exists()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        msg = f"run_dir={run_dir}: {error.strerror}; a folder that can be written is needed"
        raise ConfigError(msg) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"run_dir={run_dir}: another process is training there; wait for it or give another run_dir"
            raise ConfigError(msg) from error
        yield
    finally:
        os.close(handle)
        if not was_there:
            with suppress(OSError):  # not empty: it is a run's folder now
                run_dir.rmdir()
