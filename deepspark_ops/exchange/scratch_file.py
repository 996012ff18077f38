"""Files of a live run's scratch folder: whole or not at all, but not synced; nobody needs them after a power cut."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from deepspark_ops.run_paths import write_whole


def write_scratch(path: Path) -> AbstractContextManager[Path]:
    """Write as ``write_whole`` does, readable by this user alone and without waiting for a disk.

    Syncing 244 MB would hold up the worker whose answer waits for the snapshot; what the driver makes of these files is
    synced.
    """
    return write_whole(path, mode=0o600, sync=False)
