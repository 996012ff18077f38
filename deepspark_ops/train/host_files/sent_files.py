"""Files of a worker for the run's folder, where the worker's host does not see the folder."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.stores.store_path import StorePath, on_driver
from deepspark_ops.train.host_files.on_host import DriverFiles

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 2.0
_JOIN_S: Final = 60.0

Stamp = tuple[int, int, int]
"""Time of change, size and inode: a file that is written whole and renamed has another stamp."""


class SentFiles:
    """Sends new and changed files of folders to the driver, in a thread: training does not wait for the network.

    Every file of these folders is written under a temporary name and renamed, or is a note of a few bytes.
    """

    def __init__(self, folders: Mapping[Path, StorePath], *, pause_s: float = _PAUSE_S) -> None:
        """Begin.

        Args:
            folders: Folder of this host -> folder on the driver's disk.
            pause_s: Time between two looks for changed files.
        """
        self._folders = dict(folders)
        self._pause_s = pause_s
        self._sent: dict[Path, Stamp] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send_changes, name="send files", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Send the last changes; return the reason if files could not be sent, else an empty text."""
        self.stop()
        return self._send_changed()

    def stop(self) -> None:
        """End the thread. May be called again."""
        self._stopping.set()
        self._thread.join(_JOIN_S)

    def _send_changes(self) -> None:
        logged = ""
        while not self._stopping.wait(self._pause_s):
            problem = self._send_changed()
            if problem and problem != logged:
                _LOG.warning("%s; trying again", problem)
            logged = problem

    def _send_changed(self) -> str:
        """Send what has changed since the last call; return the first problem."""
        problem = ""
        for folder, target in self._folders.items():
            for path in sorted(folder.rglob("[!.]*")):
                try:
                    self._send(path, target / str(path.relative_to(folder)))
                except (OSError, DeepSparkError) as error:
                    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                    problem = problem or f"{path} on {socket.gethostname()} is not in the run's folder: {reason}"
                    if isinstance(error, DeepSparkError):
                        return problem  # the driver does not answer
        return problem

    def _send(self, path: Path, target: StorePath) -> None:
        with suppress(FileNotFoundError):  # replaced or removed meanwhile
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if path.is_file() and self._sent.get(path) != stamp:
                target.put(path)
                self._sent[path] = stamp


@contextmanager
def files_sent(
    files: DriverFiles | None, copy: Path, folders: Sequence[Path], warn: Callable[[str], None]
) -> Iterator[None]:
    """Send files of a copy of the run's folder to the driver during the block, and at its end.

    Args:
        files: The driver's files; where the host sees the run's folder, nothing is sent.
        copy: The copy.
        folders: Folders of the copy with these files.
        warn: Takes a text about files that could not be sent: the training is whole without them.
    """
    if files is None or files.hidden_run is None:
        yield
        return
    run = on_driver(files.hidden_run)
    sender = SentFiles({folder: run / str(folder.relative_to(copy)) for folder in folders})
    try:
        yield
        if problem := sender.finish():
            warn(problem)
    finally:
        sender.stop()


def share_notes(files: DriverFiles, copy: Path, notes: Sequence[Path]) -> None:
    """Send notes of an earlier process to the driver, or take the driver's notes where this host has none.

    Args:
        files: The driver's files.
        copy: The copy of the run's folder on this host.
        notes: Files of the copy.
    """
    if files.hidden_run is None:
        return
    run = on_driver(files.hidden_run)
    is_here = all(note.is_file() for note in notes)
    with suppress(OSError, DeepSparkError):  # a run must not fail for want of a note
        for note in notes:
            on_run = run / str(note.relative_to(copy))
            if is_here:
                on_run.put(note)
            else:
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_bytes(regular_bytes(on_run))
