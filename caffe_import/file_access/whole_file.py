"""The only way to write a file: whole or not at all. A reader sees the old file or the new file, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SUFFIX = ".tmp"


@contextmanager
def write_whole(path: Path, *, mode: int = 0o644, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success sync and rename the file, else remove the file.

    The folder is made if needed. During writing, only the owner can read the file; ``mode`` is the mode in the end.
    Without ``sync`` a power cut may leave an empty file or the old one.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with write_whole(Path(folder) / "a.txt") as temporary:
        ...         _ = temporary.write_text("done")
        ...     (Path(folder) / "a.txt").read_text()
        'done'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        if sync:
            sync_file(temporary)
        temporary.replace(path)
        if sync:
            sync_folder(path.parent)
    except OSError as error:
        if error.filename is None:  # of a write, the system does not say to which file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed writers; the caller knows that nobody writes now."""
    for path in folder.glob(f".*{_SUFFIX}"):
        if path.is_file():
            path.unlink()


def write_text_whole(path: Path, text: str) -> None:
    """Write UTF-8 text by ``write_whole``; bytes of a file's name that are no UTF-8 stay as they are."""
    with write_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")


def sync_file(path: Path) -> None:
    """Flush a file's bytes to the disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in the folder survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
