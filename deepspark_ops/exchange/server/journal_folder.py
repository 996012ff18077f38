"""The folder of a run's journal, on the disk of the driver's host. The driver holds a lock on the folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from deepspark_ops.file_lock import locked_folder

_PREFIX: Final = "deepspark-exchange-"
YOUNG_S: Final = 60.0
"""A younger folder may be one that its driver has not locked yet."""


class JournalFolder:
    """A new folder, locked until ``remove``.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        """Remove the folders of killed drivers with killed servers, and make a folder."""
        _remove_stale()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = ExitStack()
        self._lock.enter_context(locked_folder(self.path))

    def remove(self) -> None:
        """Remove the folder with the journal. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_stale() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or removed by another driver
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < YOUNG_S:
                continue
            with locked_folder(folder) as is_free:
                if is_free:
                    shutil.rmtree(folder)
