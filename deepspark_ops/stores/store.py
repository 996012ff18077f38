"""The methods of every store, and errors of stores in plain words."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol


@dataclass(frozen=True)
class Entry:
    """An object, or a folder of objects.

    Attributes:
        key: Bucket or host, and key, with slashes.
        n_bytes: Bytes of an object; 0 for a folder.
        changed_ns: Time of the last write, nanoseconds since 1970; 0 if unknown.
        is_folder: Whether the entry is a folder.
    """

    key: str
    n_bytes: int
    changed_ns: int
    is_folder: bool

    @property
    def stamp(self) -> str:
        """Size and time: a changed object has another text."""
        return f"{self.n_bytes} {self.changed_ns}"


class Store(Protocol):
    """Objects by key, ``bucket/key``. Every method raises OSError with the reason and the key as the file."""

    def __hash__(self) -> int:
        """Hash the store: lists of objects are kept by store."""
        ...

    def entry(self, key: str) -> Entry | None:
        """Return the object or folder; None without an object."""
        ...

    def entries(self, key: str, *, is_deep: bool) -> list[Entry]:
        """Return the entries of a folder; ``is_deep``: all objects below, no folders. FileNotFoundError if absent."""
        ...

    def opened(self, key: str) -> BinaryIO:
        """Return a seekable binary file for reading, not buffered."""
        ...

    def version(self, key: str) -> str:
        """Return a text that changes with the content: the store's tag, else size and time."""
        ...

    def fetch(self, key: str, target: Path) -> None:
        """Write an object's content into the existing local file ``target``."""
        ...

    def put(self, source: Path, key: str) -> None:
        """Write a local file as a whole object: until the end a reader sees the old object or no object."""
        ...

    def remove(self, key: str) -> None:
        """Remove an object; a missing object is no error."""
        ...


_AWS: Final = re.compile(
    r"AWS Error (?P<code>\w+) during (?P<call>\w+) operation: (?P<text>.*?)(?: \(Request ID:.*)?$", re.S
)
_WORDS: Final = {
    "ACCESS_DENIED": (errno.EACCES, "the store denies access to the credentials of this host (environment, AWS files)"),
    "INVALID_ACCESS_KEY_ID": (errno.EACCES, "the store does not know the access key of this host"),
    "SIGNATURE_DOES_NOT_MATCH": (errno.EACCES, "the store refuses the secret key of this host"),
    "EXPIRED_TOKEN": (errno.EACCES, "the session token of this host has expired"),
    "NO_SUCH_BUCKET": (errno.ENOENT, "no such bucket"),
    "NO_SUCH_KEY": (errno.ENOENT, "no such object"),
}


@contextmanager
def plain_errors(url: str) -> Iterator[None]:
    """Raise a store's error as an OSError with a number, a short reason and the address.

    Raises:
        OSError: The error of the block; FileNotFoundError and PermissionError stay such errors.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "no such object", url) from error
    except OSError as error:
        if error.filename is not None:  # a local file's error, or an error with an address
            raise
        number, reason = _reason(error)
        raise OSError(number, reason, url) from error


def _reason(error: OSError) -> tuple[int, str]:
    text = " ".join((error.strerror or str(error)).split())
    answer = _AWS.search(text)
    if answer is None:
        return error.errno or errno.EIO, text
    if answer["code"] in _WORDS:
        return _WORDS[answer["code"]]
    if answer["code"] == "NETWORK_CONNECTION":
        return errno.ECONNREFUSED, f"the store cannot be reached: {answer['text'].rpartition('Details: ')[2]}"
    return error.errno or errno.EIO, f"the store answers {answer['code']} to {answer['call']}: {answer['text']}"
