"""The only reader of users' files: regular files alone, with a limit on bytes from the caller.

A named pipe blocks the reader for ever, and ``/dev/zero`` has no end. So a file is opened without waiting, the kind is
read from the open file, and the size is checked before and while reading. A refusal is an ``OSError`` whose
``strerror`` fits into a message, like the error of a missing file. ``tests/architecture/test_regular_files.py`` keeps
other modules from opening users' files.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import IO, Final, Literal, Protocol, TypeAlias, TypeVar

_P = TypeVar("_P", bound="str | Path")

SETTINGS_BYTES: Final = 2**28
"""Longest file of settings, names or findings: JSON, classes, tokens."""

IMAGE_BYTES: Final = 2**30
"""Longest image file. OpenCV decodes at most 2**30 pixels."""

LIST_BYTES: Final = 2**32
"""Longest list of files: forty million lines of a hundred bytes."""


class StoredFile(Protocol):
    """An object of a store; the object opens the content."""

    def open(self, mode: Literal["rb"]) -> io.BufferedReader:
        """Open the content."""
        ...

    def read_bytes(self) -> bytes:
        """Return the content."""
        ...


AnyFile: TypeAlias = str | Path | StoredFile
"""A file on the disk, or an object of a store."""


class RefusedFileError(OSError):
    """A special file, or a file of too many bytes."""


_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_WRITE_SLASHES: Final = "(write / in place of the backslashes of Windows)"
_CHUNK_BYTES: Final = 2**20
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular_handle(path: str | Path) -> tuple[int, int]:
    """Open a local regular file without waiting.

    Returns:
        The descriptor, which the caller closes, and the file's size in bytes.

    Raises:
        RefusedFileError: It is a named pipe, a socket or a device.
        OSError: It cannot be opened, or is a folder.
    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # how a socket refuses to be opened
            raise _special_file(os.stat(path), path) from None
        if error.errno == errno.ENOENT and "\\" in str(path):
            raise FileNotFoundError(error.errno, f"{error.strerror} {_WRITE_SLASHES}", str(path)) from None
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise _special_file(status, path)
    return handle, status.st_size


def open_regular(path: AnyFile) -> io.BufferedReader:
    """Open a regular file for reading bytes, or an object of a store, which is no special file.

    Raises:
        OSError: As ``regular_handle``.
    """
    if not isinstance(path, str | Path):
        return path.open("rb")
    handle, _ = regular_handle(path)
    return open(handle, "rb")


def regular_path(path: _P) -> _P:
    """Return a local path of a regular file, for a library that opens files by name.

    Raises:
        OSError: As ``regular_handle``.
    """
    os.close(regular_handle(path)[0])
    return path


def regular_bytes(path: AnyFile, *, max_bytes: int = SETTINGS_BYTES) -> bytes:
    """Return the content of a regular file of at most ``max_bytes``.

    Raises:
        OSError: As ``regular_handle``; RefusedFileError also if the file is longer.
    """
    if not isinstance(path, str | Path):  # in one request
        content = path.read_bytes()
        require_size(len(content), max_bytes, path)
        return content
    with open_regular(path) as file:
        return _read_bounded(file, os.fstat(file.fileno()).st_size, max_bytes, path)


def regular_text(
    path: AnyFile, *, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = SETTINGS_BYTES
) -> str:
    """Return the text of a regular file of at most ``max_bytes``; its lines end in a line feed.

    Raises:
        OSError: As ``regular_bytes``.
        UnicodeDecodeError: It is no text of this encoding.
    """
    text = regular_bytes(path, max_bytes=max_bytes).decode(encoding, errors)
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def require_size(n_bytes: int, max_bytes: int, path: AnyFile) -> None:
    """Refuse a file of too many bytes.

    Raises:
        RefusedFileError: It has more than ``max_bytes``.
    """
    if n_bytes > max_bytes:
        raise RefusedFileError(
            errno.EFBIG, f"more than {max_bytes:,} bytes; longer files of this kind are not read", str(path)
        )


def _read_bounded(file: IO[bytes], size: int, max_bytes: int, path: str | Path) -> bytes:
    """Return the rest of a file that says it has ``size`` bytes; the file may be longer, as in /proc."""
    require_size(size, max_bytes, path)
    parts = [file.read(size + 1)]
    n_bytes = len(parts[0])
    while n_bytes > size and (part := file.read(_CHUNK_BYTES)):
        parts.append(part)
        n_bytes += len(part)
        require_size(n_bytes, max_bytes, path)
    require_size(n_bytes, max_bytes, path)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _special_file(status: os.stat_result, path: str | Path) -> OSError:
    if stat.S_ISDIR(status.st_mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
    return RefusedFileError(errno.ENOTSUP, f"{kind}; only regular files are read", str(path))
