"""The memory of a center: private, or a file that all processes of a host may map."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import stat
import struct
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.worker_counters import COLUMNS
from deepspark_ops.param_vector import Vector

SHARED_MEMORY = Path("/dev/shm")
FILE_PREFIX = "deepspark-"
FILE_SUFFIX = ".center"
TOKEN_BYTES = 16
SHARED_MEMORY_SPARE_BYTES = 32 << 20
"""Bytes of shared memory that stay free: TensorFlow, Spark and a small container's page cache need shared memory."""

_MAGIC = b"DSCENTER"
_VERSION = 5
_HEADER = struct.Struct("<8sI16sQQQQQ")
_PAGE = 4096
_WATCHED_OFFSET = 2048


@dataclass(frozen=True)
class CenterShape:
    """The parts of a center, and their positions in the center's file.

    Attributes:
        n_params: Floats of each vector.
        n_workers: Workers, each with a row of counters.
        n_chunks: Chunks that the strategy counts pushes of.
        server_vectors: Vectors besides the center itself.
        n_servers: Processes that serve a key range each; every one has counters of its own.
    """

    n_params: int
    n_workers: int
    n_chunks: int
    server_vectors: int = 0
    n_servers: int = 1

    @property
    def counts_offset(self) -> int:
        """First byte of the counts of held pushes. ``unfinished`` follows the counts; worker counters come before."""
        return _PAGE + _pages(8 * COLUMNS * self.n_workers * self.n_servers)

    def vector_offset(self, index: int) -> int:
        """First byte of a vector; vector 0 is the center."""
        return self.counts_offset + _pages(16 * self.n_chunks) + index * _pages(4 * self.n_params)

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.vector_offset(1 + self.server_vectors)


@dataclass(frozen=True, eq=False)
class CenterMemory:
    """The arrays of a center, and their mapped file. The mapping ends with the last array.

    Attributes:
        vector: The center, shape (n_params,), float32, writable.
        extras: The strategy's server vectors, each (n_params,).
        all_counters: Counters of every server's workers, shape (n_servers, n_workers, 16), uint64.
        counts: Pushes of each chunk that ``extras`` hold and the center does not, shape (n_chunks,), uint64.
        unfinished: Of each chunk, who is changing ``extras`` and what count it found, shape (n_chunks,), uint64.
        watched: One past the position of the chunk whose pushes are added up, shape (1,), uint64.
        path: The mapped file; None for private memory.
        token: Random bytes in the file's head: who reads the same ones maps the same memory.
        handle: Of the open file, -1 for none; whoever closes it must not use the arrays after.
    """

    vector: Vector
    extras: tuple[Vector, ...]
    all_counters: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint64]
    unfinished: npt.NDArray[np.uint64]
    watched: npt.NDArray[np.uint64]
    path: Path | None = None
    token: bytes = b""
    handle: int = -1

    @property
    def shape(self) -> CenterShape:
        """The sizes of the parts."""
        n_servers, n_workers, _ = self.all_counters.shape
        return CenterShape(len(self.vector), n_workers, len(self.counts), len(self.extras), n_servers)

    @classmethod
    def private(cls, initial: Vector, shape: CenterShape) -> CenterMemory:
        """Return private memory with a copy of ``initial``, shape (n_params,)."""
        vector = aligned_vector(shape.n_params)
        np.copyto(vector, initial)
        extras = tuple(np.zeros(shape.n_params, np.float32) for _ in range(shape.server_vectors))
        counters = np.zeros((shape.n_servers, shape.n_workers, COLUMNS), np.uint64)
        counts, unfinished = np.zeros((2, shape.n_chunks), np.uint64)
        return cls(vector, extras, counters, counts, unfinished, np.zeros(1, np.uint64))

    @classmethod
    def create(cls, initial: Vector, shape: CenterShape, *, run_id: int, work: Path) -> CenterMemory:
        """Make the file, readable by this user only, and map the file.

        The file is in shared memory if there is room, else in ``work``. The space is reserved at once: a full disk is
        an error here, and no signal during training.

        Raises:
            ConfigError: No room in either place.
        """
        folder = SHARED_MEMORY if _has_room(SHARED_MEMORY, shape.n_bytes) else work
        return cls.create_in(folder, initial, shape, run_id=run_id)

    @classmethod
    def create_in(cls, folder: Path, initial: Vector, shape: CenterShape, *, run_id: int) -> CenterMemory:
        """Make the file in a folder; see ``create``."""
        size = shape.n_bytes
        name = f"{FILE_PREFIX}{run_id:016x}-{os.getpid()}-{secrets.token_hex(4)}{FILE_SUFFIX}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        token = secrets.token_bytes(TOKEN_BYTES)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if os.fstat(handle).st_nlink == 0:  # another driver removed the file before this process locked it
                os.close(handle)
                return cls.create_in(folder, initial, shape, run_id=run_id)
            os.posix_fallocate(handle, 0, size)
            os.pwrite(handle, _HEADER.pack(_MAGIC, _VERSION, token, *astuple(shape)), 0)
            memory = cls._map(handle, path)
        except OSError as error:
            os.close(handle)
            path.unlink(missing_ok=True)
            msg = f"{folder}: no room for a center of {size:,} bytes ({error.strerror}); free some, or move the run"
            raise ConfigError(msg) from error
        np.copyto(memory.vector, initial)
        return memory

    @classmethod
    def open(cls, path: Path, token: bytes | None = None) -> CenterMemory:
        """Map an existing file.

        Args:
            path: As announced by the server.
            token: Announced too; a file with another one is a different host's or an older run's.

        Raises:
            FileNotFoundError, PermissionError: Not this host, or not this user.
            ProtocolError: The file is not this center.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            return cls._map(handle, path, token)
        except (OSError, ProtocolError):
            os.close(handle)
            raise

    @classmethod
    def _map(cls, handle: int, path: Path, expected: bytes | None = None) -> CenterMemory:
        head = os.pread(handle, _HEADER.size, 0)
        if len(head) < _HEADER.size:
            msg = f"{path}: {len(head)} bytes; a center has a header of {_HEADER.size}"
            raise ProtocolError(msg)
        magic, version, token, *numbers = _HEADER.unpack(head)
        shape = CenterShape(*numbers)
        if magic != _MAGIC or version != _VERSION or os.fstat(handle).st_size != shape.n_bytes:
            msg = f"{path}: not a center file of version {_VERSION}"
            raise ProtocolError(msg)
        if expected is not None and token != expected:
            msg = f"{path}: belongs to another exchange (its token differs)"
            raise ProtocolError(msg)
        mapping = mmap.mmap(handle, shape.n_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        n_rows = shape.n_servers * shape.n_workers
        flat_counters = np.frombuffer(mapping, np.uint64, n_rows * COLUMNS, _PAGE)
        counters = flat_counters.reshape(shape.n_servers, shape.n_workers, COLUMNS)
        counts, unfinished = np.frombuffer(mapping, np.uint64, 2 * shape.n_chunks, shape.counts_offset).reshape(2, -1)
        vector, *extras = (
            np.frombuffer(mapping, np.float32, shape.n_params, shape.vector_offset(i))
            for i in range(1 + shape.server_vectors)
        )
        watched = np.frombuffer(mapping, np.uint64, 1, _WATCHED_OFFSET)
        return cls(vector, tuple(extras), counters, counts, unfinished, watched, path, token, handle)


def host_center_path(folder: Path, run_id: int) -> Path:
    """Return the file of the center that a run's workers on this host share, in ``folder`` of shared memory."""
    return folder / f"{FILE_PREFIX}{run_id:016x}-host{FILE_SUFFIX}"


def remove_stale_centers(work: Path) -> list[Path]:
    """Remove center files without a living process, in shared memory and in a run's ``work``; return their paths.

    Every process that maps a center holds a shared lock on the file. The kernel drops the lock with the process. Any
    user may make any name in shared memory: folders, pipes and files of other users are left in place.
    """
    paths = (path for folder in (SHARED_MEMORY, work) for path in folder.glob(f"{FILE_PREFIX}*{FILE_SUFFIX}"))
    return [path for path in paths if _is_removed(path)]


def _is_removed(path: Path) -> bool:
    """Remove a regular file without locks; return False for any other file, or if the system refuses."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _pages(n_bytes: int) -> int:
    return -(-n_bytes // _PAGE) * _PAGE


def _has_room(folder: Path, size: int) -> bool:
    try:
        filesystem = os.statvfs(folder)
    except OSError:
        return False
    return filesystem.f_bavail * filesystem.f_frsize >= size + SHARED_MEMORY_SPARE_BYTES
