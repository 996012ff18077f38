"""Copies of stored objects on the local disk: each content once for all processes of a host, bounded, checked.

A library that opens files by name (LMDB, HDF5, zip) gets one from here. What is in use is never removed; what was used
longest ago goes first when room is needed. Layout of the folder, all below one that is this user's alone:

    <key>/...      the files of one content, complete: the folder is renamed into place
    <key>.use      shared lock of every process that reads them; its time of change is the last use
    <key>.fetch    exclusive lock of the process that is fetching them
    .<key>.tmp/    what it has fetched so far; files have their full length from the start, which reserves the room
    room           exclusive lock of the process that is making room
    scratch-*/     a scratch folder of a process, which holds scratch-*.use; the next scratch folder's process removes
                   those of killed processes
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.file_lock import held_lock
from deepspark_ops.stores.store_path import DataPath, StorePath

STAGING_BYTES: Final = 20 * 2**30
_FETCH_TIMEOUT_S: Final = 3600.0
_ROOM_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.02
_USE: Final = ".use"
_FETCH: Final = ".fetch"
_TEMPORARY: Final = ".tmp"
_SCRATCH: Final = "scratch-"


class NoRoomNow(ConfigError):
    """Copies in use take all room; waiting may help."""


@dataclass
class FetchCount:
    """Counts the fetches of this process into folders of copies. Threads may add at the same time.

    Attributes:
        fetches: Fetched contents, such as shards.
        n_bytes: Bytes of the contents.
    """

    fetches: int = 0
    n_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, n_bytes: int) -> None:
        """Count a fetched content."""
        with self._lock:
            self.fetches += 1
            self.n_bytes += n_bytes

    def taken(self) -> tuple[int, int]:
        """Return contents and bytes since the last call, and begin again at 0."""
        with self._lock:
            counts = self.fetches, self.n_bytes
            self.fetches = self.n_bytes = 0
        return counts


fetched: Final = FetchCount()
"""Fetches of this process."""


@dataclass(frozen=True)
class StagedFiles:
    """Files that stay on the disk until ``release``.

    Attributes:
        folder: Holds the files under the names of the call.
    """

    folder: Path
    _lock: int

    def release(self) -> None:
        """Allow the removal of the files when room is needed."""
        os.close(self._lock)


@dataclass(frozen=True)
class Staging:
    """A folder of copies.

    Attributes:
        folder: Folder on a local disk; a missing folder is made, for this user alone.
        n_bytes: Bound on the bytes of all copies, including copies in use.
    """

    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / f"deepspark-staging-{os.getuid()}")
    n_bytes: int = STAGING_BYTES

    def files(self, key: str, objects: Mapping[str, StorePath], sha256: Mapping[str, str] | None = None) -> StagedFiles:
        """Return local copies of objects; missing copies are fetched.

        Args:
            key: Name of the content, of letters and digits; other content has another key.
            objects: Path below the returned folder -> object.
            sha256: Digests of the files, by the same paths.

        Raises:
            ConfigError: The folder is another user's, or the files are larger than the room; ``NoRoomNow`` if other
                processes use the room.
            DataError: An object has another digest, or another process does not end a fetch.
            OSError: An object cannot be fetched or written; ``filename`` has the path.
        """
        self._require_folder()
        lock = self._hold(key)
        try:
            if not (self.folder / key).is_dir():
                busy = DataError(f"{self.folder / key}{_FETCH}: another process has held it for an hour; end that one")
                with held_lock(self.folder / f"{key}{_FETCH}", _FETCH_TIMEOUT_S, busy):
                    if not (self.folder / key).is_dir():
                        self._fetch(key, objects, sha256 or {})
            os.utime(self.folder / f"{key}{_USE}")
        except BaseException:
            os.close(lock)
            raise
        return StagedFiles(self.folder / key, lock)

    def has(self, key: str) -> bool:
        """Return whether copies of this key exist now."""
        return (self.folder / key).is_dir()

    def touch(self, key: str) -> None:
        """Note files as used now, if they are here, so that others are removed before them."""
        with suppress(FileNotFoundError):
            os.utime(self.folder / f"{key}{_USE}")

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty folder, which is removed at the end; remove those of processes that were killed.

        Scratch folders do not count as copies.
        """
        self._require_folder()
        for folder in self.folder.glob(f"{_SCRATCH}*"):
            if folder.is_dir():
                self._removed(folder)
        name = f"{_SCRATCH}{secrets.token_hex(8)}"
        lock = self._hold(name)
        try:
            (self.folder / name).mkdir()
            yield self.folder / name
        finally:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / f"{name}{_USE}").unlink(missing_ok=True)
            os.close(lock)

    def _require_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except OSError as error:
            msg = f"staging_folder={self.folder}: {error.strerror or error}"
            raise ConfigError(msg) from error
        if status.st_uid != os.getuid():
            msg = f"staging_folder={self.folder} belongs to another user; give a folder of your own"
            raise ConfigError(msg)

    def _hold(self, key: str) -> int:
        """Return the handle of the shared lock on copies; the copies may not exist yet."""
        path = self.folder / f"{key}{_USE}"
        deadline = time.monotonic() + _ROOM_TIMEOUT_S
        while time.monotonic() < deadline:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if path.stat().st_ino == os.fstat(handle).st_ino:
                    return handle
            except (BlockingIOError, FileNotFoundError):
                pass  # a process removes the lock: the next look finds no file, or a new file
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
            time.sleep(_POLL_S)
        msg = f"{path}: another process has held it for {_ROOM_TIMEOUT_S:.0f} s; end that one"
        raise DataError(msg)

    def _fetch(self, key: str, objects: Mapping[str, StorePath], sha256: Mapping[str, str]) -> None:
        temporary = self.folder / f".{key}{_TEMPORARY}"
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        sizes = {name: path.stat().st_size for name, path in objects.items()}
        self._reserve(temporary, sizes)
        try:
            for name, path in objects.items():
                path.fetch(temporary / name)
                _check(path, temporary / name, sizes[name], sha256.get(name))
            temporary.rename(self.folder / key)
            fetched.add(sum(sizes.values()))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise self._full_disk(sum(sizes.values())) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _reserve(self, temporary: Path, sizes: Mapping[str, int]) -> None:
        """Make files of the full length; first remove other copies until the files fit."""
        needed = sum(sizes.values())
        if needed > self.n_bytes:
            msg = (
                f"staging_size={self.n_bytes:,} bytes cannot hold {needed:,} that are needed at once"
                f" ({', '.join(list(sizes)[:3])}); raise it"
            )
            raise ConfigError(msg)
        busy = DataError(
            f"{self.folder / 'room'}: another process has held it for {_ROOM_TIMEOUT_S:.0f} s; end that one"
        )
        with held_lock(self.folder / "room", _ROOM_TIMEOUT_S, busy):
            self._make_room(needed)
            for name, n_bytes in sizes.items():
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.truncate(path, n_bytes)

    def _make_room(self, needed: int) -> None:
        copies = (path for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith(_SCRATCH))
        folders = {path: _bytes_below(path) for path in copies}
        excess = sum(folders.values()) + needed - self.n_bytes
        missing = needed - shutil.disk_usage(self.folder).free
        for path in sorted(folders, key=self._last_use):
            if max(excess, missing) <= 0:
                return
            if self._removed(path):
                excess, missing = excess - folders[path], missing - folders[path]
        if excess > 0:
            msg = (
                f"staging_size={self.n_bytes:,} bytes in {self.folder} are in use but for"
                f" {needed - excess:,}, {needed:,} more are needed; raise it"
            )
            raise NoRoomNow(msg)
        if missing > 0:
            raise self._full_disk(needed)

    def _full_disk(self, needed: int) -> NoRoomNow:
        free = shutil.disk_usage(self.folder).free
        return NoRoomNow(
            f"staging_folder={self.folder}: the disk is full, {needed:,} bytes are needed, {free:,} are free; give a"
            " staging_folder on another disk, or a smaller staging_size"
        )

    def _last_use(self, path: Path) -> float:
        name = path.name.removeprefix(".").removesuffix(_TEMPORARY)
        with suppress(OSError):
            return (self.folder / f"{name}{_USE}").stat().st_mtime
        return 0.0

    def _removed(self, path: Path) -> bool:
        """Remove a folder unless a process uses or fetches the folder; return whether the folder was removed."""
        is_part = path.name.endswith(_TEMPORARY)
        lock = self.folder / (
            f"{path.name.removeprefix('.').removesuffix(_TEMPORARY)}{_FETCH}" if is_part else f"{path.name}{_USE}"
        )
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            shutil.rmtree(path, ignore_errors=True)
            if not is_part:  # the other lock stays: a process may wait for it
                lock.unlink(missing_ok=True)
            return True
        finally:
            os.close(handle)


def _check(path: StorePath, local: Path, n_bytes: int, sha256: str | None) -> None:
    local_bytes = local.stat().st_size
    if local_bytes != n_bytes:
        msg = (
            f"{path}: has {local_bytes:,} bytes, {n_bytes:,} a moment ago: it is being written; try again when that is"
            " done"
        )
        raise DataError(msg)
    if sha256 is None:
        return
    with local.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != sha256:
        msg = f'{path}: SHA-256 is {digest[:12]}..., the manifest says {sha256[:12]}...; run "deepspark ingest" again'
        raise DataError(msg)


def _bytes_below(folder: Path) -> int:
    n_bytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                n_bytes += os.stat(os.path.join(root, name)).st_size
    return n_bytes


_in_use: Staging | None = None


def staging() -> Staging:
    """Return the folder of copies of this process."""
    return _in_use or Staging()


def staging_of(folder: Path | None, n_bytes: int) -> Staging:
    """Return the folder of copies for the options of a stage; None: a folder in the system's temporary folder."""
    return Staging(n_bytes=n_bytes) if folder is None else Staging(folder, n_bytes)


def use_staging(chosen: Staging) -> None:
    """Set the folder of copies of this process."""
    global _in_use
    _in_use = chosen


@contextmanager
def local_copy(path: DataPath) -> Iterator[Path]:
    """Yield a path that any library opens: a local path, or the copy of an object or of a folder of objects.

    Raises:
        ConfigError: The copies are larger than the room.
        DataError: An object changes during the fetch.
        OSError: An object cannot be fetched.
    """
    if not isinstance(path, StorePath):
        yield path
        return
    held = stage(path)
    try:
        yield held.folder / path.name
    finally:
        held.release()


def kept_copy(path: DataPath) -> Path:
    """Return a path that any library opens; a copy stays until the end of this process.

    Raises:
        ConfigError, DataError, OSError: See ``local_copy``.
    """
    return stage(path).folder / path.name if isinstance(path, StorePath) else path


def stage(path: StorePath) -> StagedFiles:
    """Return copies of an object, or of all objects of a folder, below the folder under ``path.name``.

    Raises:
        ConfigError: The copies are larger than the room.
        DataError: An object changes during the fetch.
        OSError: An object cannot be fetched, or no object exists.
    """
    entry = path.entry()
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, "no such object", str(path))
    if not entry.is_folder:
        return staging().files(_key(path, path.version()), {path.name: path})
    entries = path.entries(is_deep=True)
    version = "\n".join(f"{name} {entry.stamp}" for name, entry in entries.items())
    return staging().files(_key(path, version), {f"{path.name}/{name}": path / name for name in entries})


def _key(path: StorePath, version: str) -> str:
    return hashlib.sha256(f"{path}\n{version}".encode("utf-8", "surrogateescape")).hexdigest()
