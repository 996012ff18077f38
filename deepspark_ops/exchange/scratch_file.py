"""Files of a live run's scratch folder: written whole or not at all, but not synced; a power cut makes them useless."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from deepspark_ops.run_paths import write_whole


def write_scratch(path: Path) -> AbstractContextManager[Path]:
    """Write like ``write_whole``, readable by this user alone and without waiting for a disk.

    Syncing 244 MB would delay the worker whose answer waits for the snapshot. The driver syncs the snapshots that it
    makes of these files.
    """
    return write_whole(path, mode=0o600, sync=False)
