"""The center: a parameter vector in memory that all processes of a host may map, written without locks."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.exchange.buffers import aligned_vector
from deepspark_ops.exchange.scratch_file import write_scratch
from deepspark_ops.exchange.strategies import Strategy, Terms
from deepspark_ops.param_vector import StatisticBlobs, Vector, chunk_ranges

SHARED_MEMORY = Path("/dev/shm")
FILE_PREFIX = "deepspark-"
FILE_SUFFIX = ".center"
TOKEN_BYTES = 16
SHARED_MEMORY_SPARE_BYTES = 32 << 20
"""Left free in shared memory for others: TensorFlow, Spark and the page cache of small containers live there too."""

_MAGIC = b"DSCENTER"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQ16s")
_PAGE = 4096

# Columns of a worker's slot: 64-bit counters with one writer at a time, one cache line a worker.
COLUMNS = 8
BEGUN, ENDED, PLACE, MARK, STALENESS, OVERLAPS, DUPLICATES, UNCERTAIN = range(COLUMNS)
FEW_WORKERS = 64
"""Up to here adding up a column in Python is faster than calling numpy."""


@dataclass(frozen=True)
class Ticket:
    """An exchange that has begun.

    Attributes:
        sequence: This worker's exchanges so far, this one included.
        staleness: Exchanges that others ended since this worker's last pull.
        others_begun: Sum of the others' begun exchanges when this one began.
        others_open: How many of them were open then.
        total: Exchanges that all workers had ended.
    """

    sequence: int
    staleness: int
    others_begun: int
    others_open: int
    total: int

    def terms(self, n_workers: int, moving_rate: float) -> Terms:
        """Return the numbers that a strategy sees."""
        return Terms(n_workers, moving_rate, self.staleness, self.sequence - 1, self.total)


class Center:
    """The center variable, its strategy's further vectors, and one slot of counters per worker.

    Shared by every thread and process that maps it, written without locks.

    Promised: a reader sees some value that was once written to each element.
    Not promised: that the elements belong to one moment, or that every push survives; two pushes that overlap may lose
    part of one (Hogwild-style). Slots have one writer each: the worker itself in shared memory, else the server's
    thread for that worker; 64-bit stores are whole on every machine that numpy runs on. ``snapshot`` copies; the copy
    is yours.

    Attributes:
        vector: The center, shape (n_params,), float32, writable.
        extras: The strategy's server vectors, each (n_params,).
        slots: Counters, shape (n_workers, 8), uint64; see the column names of this module.
        path: The mapped file; None where the center is private memory.
        token: Random bytes in the file's head: who reads the same ones maps the same memory.
    """

    def __init__(
        self,
        parts: tuple[Vector, tuple[Vector, ...], npt.NDArray[np.uint64]],
        path: Path | None,
        token: bytes,
        mapping: mmap.mmap | None = None,
        handle: int = -1,
    ) -> None:
        """Not for callers: use ``in_memory``, ``create`` or ``open``."""
        self.vector, self.extras, self.slots = parts
        self.path = path
        self.token = token
        self._mapping = mapping
        self._handle = handle
        self._ended_at_pull: dict[int, int] = {}
        # The same counters for single reads and writes, which numpy's scalars make ten times slower.
        self._cells = self.slots.data.cast("B").cast("Q")

    @classmethod
    def in_memory(cls, initial: Vector, *, server_vectors: int, n_workers: int) -> Center:
        """Return a center in this process's own memory, a copy of ``initial`` (shape (n_params,))."""
        vector = aligned_vector(len(initial))
        np.copyto(vector, initial)
        extras = tuple(np.zeros(len(initial), np.float32) for _ in range(server_vectors))
        return cls((vector, extras, np.zeros((n_workers, COLUMNS), np.uint64)), None, b"")

    @classmethod
    def create(cls, initial: Vector, *, server_vectors: int, n_workers: int, run_id: int, work: Path) -> Center:
        """Make the file, readable by this user only, and map it.

        It lies in shared memory if there is room, else in ``work``. The space is reserved at once: a full disk is an
        error here and not a signal in the middle of training.

        Raises:
            ConfigError: No room in either place.
        """
        size = _file_bytes(len(initial), server_vectors, n_workers)
        name = f"{FILE_PREFIX}{run_id:016x}-{os.getpid()}-{secrets.token_hex(4)}{FILE_SUFFIX}"
        folder = SHARED_MEMORY if _has_room(SHARED_MEMORY, size) else work
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        token = secrets.token_bytes(TOKEN_BYTES)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if os.fstat(handle).st_nlink == 0:  # another driver swept it away before the lock was ours
                os.close(handle)
                return cls.create(initial, server_vectors=server_vectors, n_workers=n_workers, run_id=run_id, work=work)
            os.posix_fallocate(handle, 0, size)
            os.pwrite(handle, _HEADER.pack(_MAGIC, _VERSION, server_vectors, len(initial), n_workers, token), 0)
            center = cls._map(handle, path)
        except OSError as error:
            os.close(handle)
            path.unlink(missing_ok=True)
            msg = f"{folder}: no room for a center of {size:,} bytes ({error.strerror}); free some, or move the run"
            raise ConfigError(msg) from error
        np.copyto(center.vector, initial)
        return center

    @classmethod
    def open(cls, path: Path, token: bytes | None = None) -> Center:
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
            center = cls._map(handle, path)
        except (OSError, ProtocolError):
            os.close(handle)
            raise
        if token is not None and center.token != token:
            center.close()
            msg = f"{path}: belongs to another exchange (its token differs)"
            raise ProtocolError(msg)
        return center

    @classmethod
    def _map(cls, handle: int, path: Path) -> Center:
        head = os.pread(handle, _HEADER.size, 0)
        if len(head) < _HEADER.size:
            msg = f"{path}: {len(head)} bytes; a center has a header of {_HEADER.size}"
            raise ProtocolError(msg)
        magic, version, n_extras, n_params, n_workers, token = _HEADER.unpack(head)
        size = _file_bytes(n_params, n_extras, n_workers)
        if magic != _MAGIC or version != _VERSION or os.fstat(handle).st_size != size:
            msg = f"{path}: not a center file of version {_VERSION} with {size:,} bytes"
            raise ProtocolError(msg)
        mapping = mmap.mmap(handle, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        slots = np.frombuffer(mapping, np.uint64, n_workers * COLUMNS, _PAGE).reshape(n_workers, COLUMNS)
        first = _vectors_offset(n_workers)
        stride = _vector_bytes(n_params)
        vectors = [np.frombuffer(mapping, np.float32, n_params, first + i * stride) for i in range(1 + n_extras)]
        return cls((vectors[0], tuple(vectors[1:]), slots), path, token, mapping, handle)

    @property
    def n_params(self) -> int:
        """Length of the vector."""
        return len(self.vector)

    def snapshot(self) -> Vector:
        """Return a copy of the center, shape (n_params,), aligned to 64 bytes."""
        copy = aligned_vector(self.n_params)
        np.copyto(copy, self.vector)
        return copy

    def write_snapshot(self, path: Path) -> None:
        """Write the center as raw little-endian float32 to ``path``, whole or not at all."""
        with write_scratch(path) as temporary:
            self.vector.tofile(temporary)

    def begin(self, worker: int) -> Ticket:
        """Open an exchange of ``worker`` and count what others did since its last pull."""
        cells, row = self._cells, worker * COLUMNS
        own_ended = cells[row + ENDED]
        ended = self._total(ENDED) - own_ended
        begun = self._total(BEGUN) - cells[row + BEGUN]
        staleness = ended - self._ended_at_pull.get(worker, ended)
        self._ended_at_pull[worker] = ended
        cells[row + PLACE] = cells[row + MARK] = 0
        cells[row + BEGUN] = own_ended + 1
        if staleness:
            cells[row + STALENESS] += staleness
        return Ticket(own_ended + 1, staleness, begun, begun - ended, ended + own_ended)

    def end(self, worker: int, ticket: Ticket) -> int:
        """Close an exchange; returns how many exchanges of others were open during it."""
        cells, row = self._cells, worker * COLUMNS
        overlaps = ticket.others_open + self._total(BEGUN) - ticket.sequence - ticket.others_begun
        if overlaps:
            cells[row + OVERLAPS] += overlaps
        cells[row + ENDED] = ticket.sequence
        return overlaps

    def abandon(self, worker: int) -> None:
        """Close what a worker that is gone left open."""
        self._cells[worker * COLUMNS + BEGUN] = self._cells[worker * COLUMNS + ENDED]

    def pulled(self, worker: int) -> None:
        """Note that ``worker`` has just read the whole center."""
        self._ended_at_pull[worker] = self._total(ENDED) - self._cells[worker * COLUMNS + ENDED]

    def reopened(self, worker: int) -> Ticket:
        """Return a ticket for an exchange that an earlier server process opened."""
        begun = self._cells[worker * COLUMNS + BEGUN]
        return Ticket(begun, 0, self._total(BEGUN) - begun, 0, self._total(ENDED))

    def _total(self, column: int) -> int:
        if len(self.slots) <= FEW_WORKERS:
            return sum(self._cells[column::COLUMNS])
        return int(self.slots[:, column].sum())

    def unlink(self) -> None:
        """Remove the file; whoever maps it keeps its memory until it closes."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the mapping back. The arrays must not be used after."""
        empty = np.empty(0, np.float32)
        self._cells.release()
        self.vector, self.extras, self.slots = empty, (), np.empty((0, COLUMNS), np.uint64)
        if self._mapping is not None:
            # A view that a caller still holds keeps the mapping alive; it goes with that view.
            with suppress(BufferError):
                self._mapping.close()
            self._mapping = None
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Chunks:
    """One strategy's chunks over one vector: ranges in a worker's order and the statistics inside each."""

    def __init__(self, n_params: int, chunk: int, strategy: Strategy, statistics: StatisticBlobs) -> None:
        """Cut the vector."""
        self.ranges = chunk_ranges(n_params, chunk)
        self.spans = tuple(slice(*span) for span in self.ranges)
        self.strategy = strategy
        # Statistics meet in their own way; in a push they are zero, which changes nothing. Alone they are copied.
        held = statistics if strategy.name != "alone" else StatisticBlobs()
        self.held = tuple(held.within(*span) for span in self.ranges) if held.layers else None

    def order(self, worker: int, n_workers: int) -> Sequence[int]:
        """Return chunk positions from this worker's own start on, so that workers rarely write the same chunk."""
        first = worker * len(self.ranges) // n_workers
        return (*range(first, len(self.ranges)), *range(first))

    def hold_statistics(self, position: int, local: Vector, new_local: Vector, push: Vector) -> None:
        """Take the statistics of one chunk out of a push."""
        if self.held is not None and len(self.held[position]):
            push[self.held[position]] = 0.0
            new_local[self.held[position]] = local[self.held[position]]


def meet_in_memory(
    center: Center,
    chunks: Chunks,
    order: Sequence[int],
    terms: Terms,
    local: Vector,
    new_local: Vector,
    start: Vector,
    push: Vector,
    *,
    measure_distance: bool,
) -> float | None:
    """Exchange every chunk with a center that this process maps.

    Args:
        center: Mapped or private.
        chunks: The vector's cut.
        order: Chunk positions in the order to take.
        terms: Numbers of this exchange.
        local: The worker's parameters, (n_params,), read only.
        new_local: Receives the new parameters, (n_params,).
        start: What the worker began with, (n_params,); see ``Strategy.keeps_start``.
        push: Scratch of at least one chunk.
        measure_distance: Return the L2 norm of local - center.

    Returns:
        The distance, or None if it was not asked for or nothing is pulled.
    """
    strategy, vector, extras = chunks.strategy, center.vector, center.extras
    worker_chunk, server_chunk = strategy.worker_chunk, strategy.server_chunk
    measure = measure_distance and strategy.pulls
    square = 0.0
    for position in order:
        span = chunks.spans[position]
        part, own, new = vector[span], local[span], new_local[span]
        pushed = push[: len(own)]
        if measure:
            np.subtract(own, part, out=pushed)
            square += float(np.dot(pushed, pushed))
        worker_chunk(own, part, new, pushed, start[span] if strategy.keeps_start else own, terms)
        if chunks.held is not None:
            chunks.hold_statistics(position, own, new, pushed)
        server_chunk(part, tuple([extra[span] for extra in extras]) if extras else (), pushed, terms)
    return square**0.5 if measure else None


def remove_stale_centers() -> list[Path]:
    """Remove center files in shared memory that no living process holds; returns their paths.

    Every process that maps a center holds a shared lock on its file, which ends with the process, however it dies.
    """
    removed = []
    for path in SHARED_MEMORY.glob(f"{FILE_PREFIX}*{FILE_SUFFIX}"):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            removed.append(path)
        except BlockingIOError:
            pass
        finally:
            os.close(handle)
    return removed


def _vector_bytes(n_params: int) -> int:
    return -(-4 * n_params // _PAGE) * _PAGE


def _vectors_offset(n_workers: int) -> int:
    return _PAGE + -(-64 * n_workers // _PAGE) * _PAGE


def _file_bytes(n_params: int, server_vectors: int, n_workers: int) -> int:
    return _vectors_offset(n_workers) + (1 + server_vectors) * _vector_bytes(n_params)


def _has_room(folder: Path, size: int) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= size + SHARED_MEMORY_SPARE_BYTES
