"""Files of a live run's scratch folder: whole or not at all, but not synced; nobody needs them after a power cut."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def write_scratch(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success rename it into place, else remove it.

    A reader sees the old file or the new one, never a part. Syncing 244 MB to a disk would hold up the worker whose
    answer waits for the snapshot; what the driver makes of these files is synced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
