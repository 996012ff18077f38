"""A run folder has a single driver, also among hosts that share the folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import ConfigError, DeepSparkError, TrainingFailed

LOCK_NAME: Final = "driver.lock"
BEAT_S: Final = 2.0
"""A driver writes into its lock file this often, for hosts that do not see each other's locks."""
_BEATS_TO_SEE: Final = 3
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}


@dataclass(frozen=True)
class _Driver:
    """The driver that has written a lock file last."""

    host: str
    pid: int
    beat: int

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}"


@contextmanager
def sole_owner(run_dir: Path, *, host: str = "", beat_s: float = BEAT_S) -> Iterator[None]:
    """Hold the run's folder: two drivers in a folder would write over each other.

    The lock on a file in the folder lasts until the process ends, in any way. Some network file systems have no locks,
    or do not show locks to other hosts. So the holder also writes into the file every ``beat_s`` seconds. A starting
    driver reads the file for three such periods if the file names another host.

    Args:
        run_dir: The folder, made if missing.
        host: This host's name; empty for the system's name.
        beat_s: Seconds between two signs of life.

    Raises:
        ConfigError: Another process holds the folder; the message names process and host.
    """
    was_there = run_dir.exists()
    path, host = run_dir / LOCK_NAME, host or socket.gethostname()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        handle, is_locked = _locked(path)
    except OSError as error:
        msg = f"run_dir={run_dir}: {error.strerror}; a folder that can be written is needed"
        raise ConfigError(msg) from error
    is_over = threading.Event()
    beats = threading.Thread(target=_beat, args=(handle, host, beat_s, is_over), name="run folder", daemon=True)
    is_owner = False
    try:
        _refuse_a_living_driver(path, host, beat_s, is_locked=is_locked)
        is_owner = True
        _write(handle, host, 0)
        beats.start()
        yield
    finally:
        is_over.set()
        if beats.is_alive():
            beats.join()
        if is_owner:
            path.unlink(missing_ok=True)
        os.close(handle)
        if not was_there:
            with suppress(OSError):  # not empty: it is a run's folder now
                run_dir.rmdir()


@contextmanager
def removal_named(run_dir: Path, clock: Callable[[], int]) -> Iterator[None]:
    """Name the removal of the run's folder, in place of the errors that follow.

    Args:
        run_dir: The folder, which ``sole_owner`` holds.
        clock: Returns the minibatches done so far.

    Raises:
        TrainingFailed: The block has failed and the folder is gone, or another one has its name.
    """
    try:
        yield
    except (DeepSparkError, OSError) as error:
        if (run_dir / LOCK_NAME).exists():
            raise
        msg = (
            f"{run_dir}: the run's folder was removed or renamed while the run trained, at minibatch {clock()}; put the"
            " folder back to go on from its last snapshot, or start a new run"
        )
        raise TrainingFailed(msg) from error


def check_presence(run_dir: Path) -> None:
    """Look for the lock file: a file that is written after a removal makes the folder again, without the lock file.

    Args:
        run_dir: The folder, which ``sole_owner`` holds.

    Raises:
        FileNotFoundError: The folder is gone, or another folder has its name. Other errors of the disk are for those
            who write there.
    """
    try:
        (run_dir / LOCK_NAME).stat()
    except FileNotFoundError:
        raise
    except OSError:
        return


def _locked(path: Path) -> tuple[int, bool]:
    """Return the open lock file, and whether the file system could lock it.

    Raises:
        ConfigError: Another process holds the lock.
        OSError: The file cannot be made or written.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # NFS locks only what is open for writing
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise ConfigError(_held(path, _read(path))) from error
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return handle, False
            os.close(handle)
            raise
        # The holder before may have removed the file between our opening and locking it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle, True
        os.close(handle)


def _refuse_a_living_driver(path: Path, host: str, beat_s: float, *, is_locked: bool) -> None:
    """Look for signs of life of the driver in the lock file, if the lock may be invisible here.

    Raises:
        ConfigError: The driver lives.
    """
    holder = _read(path)
    if holder is None or (holder.host == host and (is_locked or not _is_alive(holder.pid))):
        return
    deadline = time.monotonic() + _BEATS_TO_SEE * beat_s
    while time.monotonic() < deadline:
        time.sleep(beat_s / 4)
        if (now := _read(path)) != holder:
            raise ConfigError(_held(path, now))


def _held(path: Path, driver: _Driver | None) -> str:
    holder = "another process" if driver is None else str(driver)
    return f"run_dir={path.parent}: {holder} is training there; wait for it or give another run_dir"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _beat(handle: int, host: str, beat_s: float, is_over: threading.Event) -> None:
    beat = 0
    while not is_over.wait(beat_s):
        beat += 1
        with suppress(OSError):  # the run itself will say what is wrong with the disk
            _write(handle, host, beat)


def _write(handle: int, host: str, beat: int) -> None:
    text = json.dumps({"host": host, "pid": os.getpid(), "beat": beat}).encode()
    os.pwrite(handle, text, 0)
    os.ftruncate(handle, len(text))


def _read(path: Path) -> _Driver | None:
    """Return the driver in a lock file; the file is opened anew, or NFS would not fetch the present content."""
    try:
        fields = json.loads(regular_text(path))
        return _Driver(str(fields["host"]), int(fields["pid"]), int(fields["beat"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
