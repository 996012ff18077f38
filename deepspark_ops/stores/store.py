"""What every store provides, and its errors in plain words."""

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
        n_bytes: Of an object; 0 for a folder.
        changed_ns: When it was last written, nanoseconds since 1970; 0 if the store does not say.
        is_folder: Whether it is a folder.
    """

    key: str
    n_bytes: int
    changed_ns: int
    is_folder: bool

    @property
    def stamp(self) -> str:
        """Size and time: another text means that the object has changed."""
        return f"{self.n_bytes} {self.changed_ns}"


class Store(Protocol):
    """Objects by their keys, ``bucket/key``. Every method raises OSError with the reason, the key as its file."""

    def entry(self, key: str) -> Entry | None:
        """Return what is there, None if nothing is."""
        ...

    def entries(self, key: str, *, is_deep: bool) -> list[Entry]:
        """Return what is in a folder; ``is_deep``: all objects below it, without folders. FileNotFoundError if none."""
        ...

    def opened(self, key: str) -> BinaryIO:
        """Return a seekable binary file for reading, not buffered."""
        ...

    def version(self, key: str) -> str:
        """Return a text that changes with the content: the store's own tag if it has one, else size and time."""
        ...

    def fetch(self, key: str, target: Path) -> None:
        """Write an object's content into the local file ``target``, which is there."""
        ...

    def put(self, source: Path, key: str) -> None:
        """Write a local file as one whole object: until the end a reader sees the old one or none."""
        ...

    def remove(self, key: str) -> None:
        """Remove an object; none there is no error."""
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
    """Raise what a store says as an OSError with a number, one short reason and the address.

    Raises:
        OSError: For the error of the block; FileNotFoundError and PermissionError where it is one of those.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "no such object", url) from error
    except OSError as error:
        if error.filename is not None:  # of a local file, or said already
            raise
        number, reason = _reason(error)
        raise OSError(number, reason, url) from error


def _reason(error: OSError) -> tuple[int, str]:
    text = " ".join((error.strerror or str(error)).split())
    found = _AWS.search(text)
    if found is None:
        return error.errno or errno.EIO, text
    if found["code"] in _WORDS:
        return _WORDS[found["code"]]
    if found["code"] == "NETWORK_CONNECTION":
        return errno.ECONNREFUSED, f"the store cannot be reached: {found['text'].rpartition('Details: ')[2]}"
    return error.errno or errno.EIO, f"the store answers {found['code']} to {found['call']}: {found['text']}"
