"""The stamp of a file: equal stamps, unchanged file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

Stamp = tuple[int, int]
"""Size and change time (ns) of a file; ``MISSING`` for a missing file."""
MISSING: Final[Stamp] = (0, 0)


def file_stamp(path: Path | str) -> Stamp:
    """Return the stamp of a file."""
    try:
        stat = os.stat(path)
    except OSError:
        return MISSING
    return stat.st_size, stat.st_mtime_ns
