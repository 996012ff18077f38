"""Paths of data: local ones and such in a store, ``s3://bucket/key``, in one syntax for driver and workers."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from typing import IO, Any, BinaryIO, Final, cast

from deepspark_ops.stores.arrow_store import ARROW_SCHEMES, ArrowStore
from deepspark_ops.stores.hadoop_store import HADOOP_SCHEMES, HadoopStore
from deepspark_ops.stores.store import Entry, Store, plain_errors

STORE_SCHEMES: Final = (*ARROW_SCHEMES, *HADOOP_SCHEMES)
_URL: Final = re.compile(rf"(?P<scheme>{'|'.join(STORE_SCHEMES)}):/{{2}}(?P<rest>.*)", re.S)
_LOCAL_URL: Final = re.compile(r"file:(?://(?:localhost)?)?(?P<path>/.*)", re.S)
_DEFAULT_HOST: Final = "-"
"""Stands for the host that ``hdfs:///data`` leaves to Hadoop's settings; no host is called so."""
_BUFFER_BYTES: Final = 2**18


class StorePath(PosixPath):
    """A path in a store: what a pure path can, and of a path of the file system what reading data takes.

    Its text is the address. What it does not have, such as ``rename``, fails as a path that is not there does. Files
    for libraries that open local ones alone come from ``staging.local_copy``.

    Example:
        >>> StorePath("s3://bucket/photos") / "cat" / "1.jpg"
        StorePath('s3://bucket/photos/cat/1.jpg')
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return the address."""
        text = super().__str__()
        scheme, mark, rest = text.partition(":/")
        rest = rest.removeprefix(_DEFAULT_HOST) if rest.startswith(f"{_DEFAULT_HOST}/") else rest
        return f"{scheme}://{rest}" if mark else text

    def __rtruediv__(self, key: Any) -> StorePath:
        """Return the path itself: it is taken from no folder."""
        return self

    @property
    def scheme(self) -> str:
        """``s3`` of ``s3://bucket/key``."""
        return self.parts[0].removesuffix(":")

    @property
    def place(self) -> str:
        """``bucket/key`` of ``s3://bucket/key``."""
        bucket, *keys = self.parts[1:] or ("",)
        return posixpath.normpath("/".join((bucket, *keys)))

    def is_absolute(self) -> bool:
        """Return True."""
        return True

    def absolute(self) -> StorePath:
        """Return the path itself."""
        return self

    def resolve(self, strict: bool = False) -> StorePath:
        """Return the path itself."""
        return self

    def expanduser(self) -> StorePath:
        """Return the path itself."""
        return self

    def entry(self) -> Entry | None:
        """Return what is there, None if nothing is.

        Raises:
            OSError: The store does not say.
        """
        with plain_errors(str(self)):
            return self._store().entry(self.place)

    def version(self) -> str:
        """Return a text that changes with the object's content.

        Raises:
            OSError: It is not there, or the store does not say.
        """
        with plain_errors(str(self)):
            return self._store().version(self.place)

    def entries(self, *, is_deep: bool = False) -> dict[str, Entry]:
        """Return what is in a folder by name; ``is_deep``: all objects below, by their paths from here, sorted.

        Raises:
            OSError: It is not there, or the store does not say.
        """
        with plain_errors(str(self)):
            found = self._store().entries(self.place, is_deep=is_deep)
        start = len(self.place.rstrip("/")) + 1
        return {entry.place[start:]: entry for entry in sorted(found, key=lambda entry: entry.place)}

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether an object or folder is there; OSError if the store does not say."""
        return self.entry() is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether an object is there; OSError if the store does not say."""
        found = self.entry()
        return found is not None and not found.is_folder

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is an object below; OSError if the store does not say."""
        found = self.entry()
        return found is not None and found.is_folder

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return size and time of change; all else is 0."""
        found = self.entry()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        mode = (stat.S_IFDIR | 0o555) if found.is_folder else (stat.S_IFREG | 0o444)
        seconds = found.changed_ns / 1e9
        fields = (mode, 0, 0, 1, 0, 0, found.n_bytes, int(seconds), int(seconds), int(seconds))
        return os.stat_result(fields, {"st_mtime_ns": found.changed_ns, "st_mtime": seconds})

    def open(  # type: ignore[override]
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open an object for reading.

        Raises:
            OSError: It is not there, or the mode writes.
        """
        if set(mode) - set("rbt"):
            raise OSError(errno.EROFS, f"cannot be opened with mode {mode!r}: objects are written whole", str(self))
        with plain_errors(str(self)):
            raw = cast(io.RawIOBase, _Named(self._store().opened(self.place), str(self)))
            if buffering == 0:
                return cast(BinaryIO, raw)
            plain = io.BufferedReader(raw, _BUFFER_BYTES)
        return plain if "b" in mode else io.TextIOWrapper(plain, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """Return an object's content; OSError if it cannot be read."""
        with plain_errors(str(self)), self._store().opened(self.place) as stream:
            return stream.read()

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Return an object's content as text; OSError if it cannot be read."""
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as stream:
            return str(stream.read())

    def iterdir(self) -> Iterator[StorePath]:  # type: ignore[override]
        """Yield what is in a folder; OSError if it cannot be listed."""
        return iter([self / name for name in self.entries()])

    def glob(self, pattern: str, **_: Any) -> Iterator[StorePath]:  # type: ignore[override]
        """Yield what is in a folder and has a name like ``pattern``, which holds no slash."""
        found = self.entries() if self.is_dir() else {}
        return iter([self / name for name in found if fnmatchcase(name, pattern)])

    def rglob(self, pattern: str, **_: Any) -> Iterator[StorePath]:  # type: ignore[override]
        """Yield the objects below a folder that have a name like ``pattern``, which holds no slash."""
        found = self.entries(is_deep=True) if self.is_dir() else {}
        return iter([self / name for name in found if fnmatchcase(posixpath.basename(name), pattern)])

    def fetch(self, target: Path) -> None:
        """Write the object's content into a local file that is there; OSError if it cannot be read."""
        with plain_errors(str(self)):
            self._store().fetch(self.place, target)

    def put(self, source: Path) -> None:
        """Write a local file here as one whole object; OSError if it cannot be written."""
        with plain_errors(str(self)):
            self._store().put(source, self.place)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; none there is no error."""
        with plain_errors(str(self)):
            self._store().remove(self.place)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: stores have folders for as long as there is something in them."""

    def _store(self) -> Store:
        if self.scheme in ARROW_SCHEMES:
            return ArrowStore(self.scheme)
        if self.scheme in HADOOP_SCHEMES:
            return HadoopStore(self.scheme)
        raise FileNotFoundError(errno.ENOENT, "no such file", str(self))


class _Named(io.RawIOBase):
    """A stream of a store whose errors name the address."""

    def __init__(self, stream: BinaryIO, url: str) -> None:
        self._stream = stream
        self._url = url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with plain_errors(self._url):
            content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def data_path(text: str | Path) -> Path:
    """Return the path that a user writes: ``s3://bucket/key`` is in a store, ``file:///data`` and all else is local.

    Example:
        >>> data_path("s3://bucket/a//b/"), data_path("file:///data"), data_path("hdfs:///data")
        (StorePath('s3://bucket/a/b'), PosixPath('/data'), StorePath('hdfs:///data'))
    """
    if isinstance(text, Path):
        return text
    if found := _URL.fullmatch(text):
        rest = found["rest"]
        return StorePath(f"{found['scheme']}:/{_DEFAULT_HOST if rest.startswith('/') else ''}{rest}")
    if found := _LOCAL_URL.fullmatch(text):
        return Path(found["path"])
    return Path(text)


def joined(folder: Path, name: str) -> Path:
    """Return the path of a name that a list gives: from ``folder``, or by itself if it is absolute or an address."""
    return data_path(name) if _URL.fullmatch(name) else folder / name
