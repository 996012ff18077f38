"""Paths of data: local ones and addresses in a store, ``s3://bucket/key``, in one syntax for driver and workers.

``data_path`` alone decides: a text with the scheme of a store is a ``StorePath``, every other text is a ``Path``. A
function that takes both says ``DataPath``.

``StorePath`` is no ``pathlib.Path`` and has no ``__fspath__``: ``open(address)``, ``Path(address)`` and
``os.path.join(address)`` are errors of types and raise TypeError. A subclass of ``Path`` would pass the type check,
and ``s3:/bucket/key`` would be looked for on the disk.

universal-pathlib 0.3.10 was tried with s3fs 2026.9.0 against moto's server. It has no ``__fspath__`` either, but:

- The listing of a folder is cached: an object that another process has written stays unseen.
- hdfs needs libhdfs, which pyarrow's package does not hold; viewfs and abfss have no implementation. Spark's jars read
  all three. So the Hadoop path would be an fsspec file system of our own.
- ``s3://bucket/a//b/`` keeps both slashes. ``Path(folder) / address`` raises ValueError.
- An unreachable store raises botocore's own exception, which is no OSError. No error has a ``filename``.
- Ten packages (aiobotocore, aiohttp) come beside pyarrow, which reads S3 and GCS already.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import stat
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal, NoReturn, TypeAlias, cast

from deepspark_ops.stores.arrow_store import ARROW_SCHEMES, ArrowStore
from deepspark_ops.stores.hadoop_store import HADOOP_SCHEMES, HadoopStore
from deepspark_ops.stores.store import Entry, Store, plain_errors

STORE_SCHEMES: Final = (*ARROW_SCHEMES, *HADOOP_SCHEMES)
_DRIVER_SCHEME: Final = "driver"
"""Of a file on the disk of a run's driver. No text of a user has this scheme."""
_URL: Final = re.compile(rf"(?P<scheme>{'|'.join(STORE_SCHEMES)}):/{{2}}(?P<rest>.*)", re.S)
_LOCAL_URL: Final = re.compile(r"file:(?://(?:localhost)?)?(?P<path>/.*)", re.S)
_BUFFER_BYTES: Final = 2**18
_LISTING_S: Final = 60


class StorePath:
    """The address of an object, or of a folder of objects, with the methods of ``Path`` that reading data takes.

    Files for libraries that open local files alone come from ``staging.local_copy``.

    Attributes:
        scheme: ``s3`` of ``s3://bucket/key``.
        keys: ``bucket/key``; absolute where Hadoop's settings name the host, as of ``hdfs:///key``.

    Example:
        >>> data_path("s3://bucket/photos") / "cat" / "1.jpg"
        data_path('s3://bucket/photos/cat/1.jpg')
    """

    # No dataclass: asdict() and pydantic's model_dump() would make a mapping of a dataclass inside another one.
    __slots__ = ("keys", "scheme")
    scheme: str
    keys: PurePosixPath

    def __init__(self, scheme: str, keys: PurePosixPath) -> None:
        """Name an object; ``data_path`` makes addresses of texts."""
        object.__setattr__(self, "scheme", scheme)
        object.__setattr__(self, "keys", keys)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse a change."""
        msg = f"{self!r} does not change"
        raise AttributeError(msg)

    def __reduce__(self) -> tuple[type[StorePath], tuple[str, PurePosixPath]]:
        """Return the parts for pickle (Spark's tasks) and copy."""
        return StorePath, (self.scheme, self.keys)

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same address."""
        return isinstance(other, StorePath) and (self.scheme, self.keys) == (other.scheme, other.keys)

    def __hash__(self) -> int:
        """Hash the address."""
        return hash((self.scheme, self.keys))

    def __lt__(self, other: StorePath) -> bool:
        """Order addresses as paths."""
        return (self.scheme, self.keys) < (other.scheme, other.keys)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> NoReturn:
        """Refuse to be a plain type of a field: pydantic would take an address for a local path."""
        msg = "a field that may be an address has the type DataPathField of config.base"
        raise TypeError(msg)

    def __str__(self) -> str:
        """Return the address."""
        return f"{self.scheme}://{self.keys if self.keys.parts else ''}"

    def __repr__(self) -> str:
        """Return the call that makes the address."""
        return f"data_path({str(self)!r})"

    def __truediv__(self, name: str) -> StorePath:
        """Return the address of a name below.

        A slash at the start of the name is left out: a store has no root. An absolute path on the driver's disk stays.
        """
        return StorePath(self.scheme, self.keys / (name if self.is_on_driver else name.lstrip("/")))

    def __rtruediv__(self, folder: Path) -> StorePath:
        """Return the address, as a folder joined to an absolute path returns the path."""
        return self

    @property
    def key(self) -> str:
        """``bucket/key`` of ``s3://bucket/key``, without ``.`` and ``..``, for a ``Store``."""
        return posixpath.normpath(self.keys)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.keys.name

    @property
    def stem(self) -> str:
        """The name without the suffix."""
        return self.keys.stem

    @property
    def suffix(self) -> str:
        """The end of the name from the last dot on."""
        return self.keys.suffix

    @property
    def parent(self) -> StorePath:
        """The folder."""
        return StorePath(self.scheme, self.keys.parent)

    @property
    def parents(self) -> tuple[StorePath, ...]:
        """The folders above, the nearest first; the last has the bucket or host alone."""
        return tuple(StorePath(self.scheme, keys) for keys in self.keys.parents if keys.parts)

    def with_name(self, name: str) -> StorePath:
        """Return the address with another last part."""
        return StorePath(self.scheme, self.keys.with_name(name))

    def with_suffix(self, suffix: str) -> StorePath:
        """Return the address with another suffix."""
        return StorePath(self.scheme, self.keys.with_suffix(suffix))

    def is_absolute(self) -> Literal[True]:
        """Return True."""
        return True

    def absolute(self) -> StorePath:
        """Return the address itself."""
        return self

    def resolve(self) -> StorePath:
        """Return the address itself."""
        return self

    def entry(self) -> Entry | None:
        """Return the object or folder; None if the address names neither.

        Raises:
            OSError: The store does not answer.
        """
        with plain_errors(str(self)):
            return self.store().entry(self.key)

    def version(self) -> str:
        """Return a text that changes with the object's content.

        Raises:
            OSError: The object is missing, or the store does not answer.
        """
        with plain_errors(str(self)):
            return self.store().version(self.key)

    def entries(self, *, is_deep: bool = False) -> dict[str, Entry]:
        """Return name -> entry of a folder; ``is_deep``: path below the folder -> object, sorted.

        Raises:
            OSError: The folder is missing, or the store does not answer.
        """
        with plain_errors(str(self)):
            entries = self.store().entries(self.key, is_deep=is_deep)
        start = len(self.key.rstrip("/")) + 1
        return {entry.key[start:]: entry for entry in sorted(entries, key=lambda entry: entry.key)}

    def exists(self) -> bool:
        """Return whether an object or folder exists; OSError if the store does not answer."""
        return self.entry() is not None

    def is_file(self) -> bool:
        """Return whether an object exists; OSError if the store does not answer."""
        entry = self.entry()
        return entry is not None and not entry.is_folder

    def is_dir(self) -> bool:
        """Return whether an object exists below; OSError if the store does not answer."""
        entry = self.entry()
        return entry is not None and entry.is_folder

    def stat(self) -> os.stat_result:
        """Return size and time of change; all else is 0."""
        entry = self.entry()
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        mode = (stat.S_IFDIR | 0o555) if entry.is_folder else (stat.S_IFREG | 0o444)
        seconds = entry.changed_ns / 1e9
        fields = (mode, 0, 0, 1, 0, 0, entry.n_bytes, int(seconds), int(seconds), int(seconds))
        return os.stat_result(fields, {"st_mtime_ns": entry.changed_ns, "st_mtime": seconds})

    def open(self, mode: Literal["rb"]) -> io.BufferedReader:
        """Open an object for reading bytes; OSError for a missing or unreadable object."""
        with plain_errors(str(self)):
            raw = cast(io.RawIOBase, _Named(self.store().opened(self.key), str(self)))
            return io.BufferedReader(raw, _BUFFER_BYTES)

    def read_bytes(self) -> bytes:
        """Return an object's content; OSError for a missing or unreadable object."""
        with plain_errors(str(self)), self.store().opened(self.key) as stream:
            return stream.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return an object's content as text; OSError for a missing or unreadable object."""
        with self.open("rb") as stream:
            return io.TextIOWrapper(stream, encoding).read()

    def iterdir(self) -> Iterator[StorePath]:
        """Yield the paths in a folder; OSError for a missing folder."""
        return iter([self / name for name in self.entries()])

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Yield the paths in a folder with a name like ``pattern``; the pattern has no slash."""
        names = self.entries() if self.is_dir() else {}
        return iter([self / name for name in names if fnmatchcase(name, pattern)])

    def rglob(self, pattern: str) -> Iterator[StorePath]:
        """Yield the objects below a folder with a name like ``pattern``; the pattern has no slash."""
        names = self.entries(is_deep=True) if self.is_dir() else {}
        return iter([self / name for name in names if fnmatchcase(posixpath.basename(name), pattern)])

    def fetch(self, target: Path) -> None:
        """Write the object's content into an existing local file; OSError for a missing or unreadable object."""
        with plain_errors(str(self)):
            self.store().fetch(self.key, target)

    def put(self, source: Path) -> None:
        """Write a local file as a whole object; OSError after a failed write."""
        with plain_errors(str(self)):
            self.store().put(source, self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; a missing object is no error."""
        with plain_errors(str(self)):
            self.store().remove(self.key)

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has a folder as long as the folder has an object."""

    @property
    def is_on_driver(self) -> bool:
        """Whether the address names a file on the disk of the run's driver."""
        return self.scheme == _DRIVER_SCHEME

    def store(self) -> Store:
        """Return the store; OSError without a connection to the driver's files."""
        if self.is_on_driver:
            if _driver_store is None:
                raise OSError(errno.ENOTCONN, "this process has no connection to the driver's files")
            return _driver_store
        return ArrowStore(self.scheme) if self.scheme in ARROW_SCHEMES else HadoopStore(self.scheme)


DataPath: TypeAlias = Path | StorePath
"""A path of data, for reading or writing."""

_driver_store: Store | None = None


def use_driver_store(store: Store | None) -> None:
    """Set the store of the driver's files for this process; an equal store keeps its connections."""
    global _driver_store
    if store != _driver_store:
        _driver_store = store


def on_driver(path: Path) -> StorePath:
    """Return the address of a file or folder on the driver's disk; ``path`` is absolute.

    Example:
        >>> on_driver(Path("/data/digits")) / "train"
        data_path('driver:///data/digits/train')
    """
    return StorePath(_DRIVER_SCHEME, PurePosixPath(path))


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


def data_path(text: str | DataPath) -> DataPath:
    """Return the path of a user's text: ``s3://bucket/key`` is in a store, ``file:///data`` and other texts are local.

    Example:
        >>> data_path("s3://bucket/a//b/"), data_path("file:///data"), data_path("hdfs:///data")
        (data_path('s3://bucket/a/b'), PosixPath('/data'), data_path('hdfs:///data'))
    """
    if not isinstance(text, str):
        return text
    if url := _URL.fullmatch(text):
        is_host_left_out = url["rest"].startswith("/") and url["scheme"] in HADOOP_SCHEMES
        return StorePath(url["scheme"], PurePosixPath("/" if is_host_left_out else "", url["rest"].lstrip("/")))
    return local_path(text)


def local_path(text: str | Path) -> Path:
    """Return the local path of a user's text: ``file:///data`` and ``~/data`` are absolute.

    Example:
        >>> local_path("file:///data/a"), local_path("data/a")
        (PosixPath('/data/a'), PosixPath('data/a'))
    """
    if url := _LOCAL_URL.fullmatch(str(text)):
        return Path(url["path"])
    path = Path(text)
    return path.expanduser() if path.parts[:1] == ("~",) else path


def name_below(folder: DataPath, path: DataPath) -> str:
    """Return the name of a path below a folder, with slashes; empty for the folder itself.

    Example:
        >>> name_below(data_path("s3://bucket/table"), data_path("s3://bucket/table/day=3/a.csv"))
        'day=3/a.csv'
    """
    return str(path).removeprefix(str(folder)).removeprefix("/")


def paths_in(folder: DataPath, pattern: str = "*") -> list[DataPath]:
    """Return the paths in a folder with a name like ``pattern``, by name; OSError for a missing folder."""
    paths = [path for path in folder.iterdir() if fnmatchcase(path.name, pattern)]
    return sorted(paths, key=lambda path: path.name)


def objects_below(folder: StorePath) -> Mapping[str, Entry]:
    """Return path below the folder -> object, sorted; the listing is at most a minute old.

    A million objects take a thousand requests.

    Raises:
        OSError: The store does not answer, or the folder does not exist.
    """
    with plain_errors(str(folder)):
        store = folder.store()
    return _listed(folder, store, int(time.monotonic() // _LISTING_S))


@lru_cache(maxsize=8)
def _listed(folder: StorePath, _store: Store, _minute: int) -> Mapping[str, Entry]:
    return folder.entries(is_deep=True)


def joined(folder: DataPath, name: str) -> DataPath:
    """Return the path of a name in a list: below ``folder``, unless the name is an absolute path or an address."""
    return data_path(name) if _URL.fullmatch(name) else folder / name
