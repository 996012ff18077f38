"""Files that are no regular files, for tests: a reader must refuse such a file at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SPECIAL_KINDS = {"pipe": "named pipe", "device": "device", "socket": "socket", "folder": "irectory"}
"""Kind -> a word of the message."""


@contextmanager
def make_special(kind: str, path: Path) -> Iterator[Path]:
    """Make the special file at ``path``, in place of any file there; a device is a link to ``/dev/zero``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "socket":
                folder = os.open(path.parent, os.O_RDONLY)
                try:  # an address has at most 107 bytes, a test's folder often more
                    listener.bind(f"/proc/self/fd/{folder}/{path.name}")
                finally:
                    os.close(folder)
            case "folder":
                path.mkdir()
            case _:
                raise ValueError(kind)
        yield path
    finally:
        listener.close()
