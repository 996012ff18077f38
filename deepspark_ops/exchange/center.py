"""The center: a parameter vector in memory that all processes of a host may map, written without locks."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import secrets
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.exchange.buffers import aligned_vector
from deepspark_ops.exchange.locks import CenterLocks, ChunkLocks, LockMode
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
_VERSION = 2
_HEADER = struct.Struct("<8sI16sQQQQQ")
_PAGE = 4096
_add_up = np.add.reduce
_WATCHED_OFFSET = 2048

# Columns of a worker's slot: 64-bit numbers with one writer at a time, two cache lines a worker. The sums of watched
# pushes are float64, everything else counts.
COLUMNS = 16
BEGUN, ENDED, PLACE, MARK, STALENESS, OVERLAPS, DUPLICATES, UNCERTAIN, MOVED_BYTES = range(9)
WATCH_BEGUN, WATCH_ENDED, WATCH_SUM, WATCH_SIZE, SESSION = range(9, 14)
MIN_WATCH_FLOATS = 2_048
FEW_WORKERS = 64
"""Up to here adding up a column in Python is faster than calling numpy."""


class Ticket(NamedTuple):
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


@dataclass(frozen=True)
class CenterShape:
    """What a center holds, and where in its file.

    Attributes:
        n_params: Floats of each vector.
        n_workers: Slots.
        n_chunks: Chunks that the strategy counts pushes of.
        server_vectors: Vectors besides the center itself.
        n_servers: Processes that serve a key range each; every one has slots of its own.
    """

    n_params: int
    n_workers: int
    n_chunks: int
    server_vectors: int = 0
    n_servers: int = 1

    @property
    def counts_offset(self) -> int:
        """First byte of the counts of held pushes, turns after them; slots come before."""
        return _PAGE + _pages(8 * COLUMNS * self.n_workers * self.n_servers)

    def vector_offset(self, index: int) -> int:
        """First byte of a vector, the center being vector 0."""
        return self.counts_offset + _pages(16 * self.n_chunks) + index * _pages(4 * self.n_params)

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.vector_offset(1 + self.server_vectors)


@dataclass(frozen=True)
class _Parts:
    """The arrays of a center."""

    vector: Vector
    extras: tuple[Vector, ...]
    all_slots: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint64]
    watched: npt.NDArray[np.uint64]
    turns: npt.NDArray[np.uint64]


class Center:
    """The center variable, its strategy's further vectors, one slot of counters per worker, one count per chunk.

    Shared by every thread and process that maps it, written without locks unless ``locks`` says otherwise.

    Promised: a reader sees some value that was once written to each element.
    Not promised: that the elements belong to one moment, or that every push survives; two pushes that overlap may lose
    part of one (Hogwild-style). Slots have one writer each: the worker itself in shared memory, else the server's
    thread for that worker; 64-bit stores are whole on every machine that numpy runs on. ``snapshot`` copies; the copy
    is yours.

    Attributes:
        vector: The center, shape (n_params,), float32, writable.
        extras: The strategy's server vectors, each (n_params,).
        slots: Counters of this process's server, shape (n_workers, 16), uint64; see the column names of this module.
        all_slots: Counters of every server, shape (n_servers, n_workers, 16).
        counts: Pushes of each chunk that ``extras`` hold and the center does not, shape (n_chunks,), uint64.
        turns: Actions on each chunk so far, shape (n_chunks,), uint64; counted where a run is recorded.
        locks: None until ``use_locks``.
        path: The mapped file; None where the center is private memory.
        token: Random bytes in the file's head: who reads the same ones maps the same memory.
    """

    def __init__(
        self,
        parts: _Parts,
        path: Path | None,
        token: bytes,
        mapping: mmap.mmap | None = None,
        handle: int = -1,
        server: int = 0,
    ) -> None:
        """Not for callers: use ``in_memory``, ``create`` or ``open``."""
        self.vector, self.extras, self.counts = parts.vector, parts.extras, parts.counts
        self.all_slots, self.slots = parts.all_slots, parts.all_slots[server]
        self.path = path
        self.token = token
        self.turns = parts.turns
        self.locks: ChunkLocks | None = None
        self._parts = parts
        self._mapping = mapping
        self._handle = handle
        self._ended_at_pull: dict[int, int] = {}
        # The same counters for single reads and writes, which numpy's scalars make ten times slower.
        self._cells = self.slots.data.cast("B").cast("Q")
        self._float_cells = self.slots.data.cast("B").cast("d")
        self._watched = parts.watched.data
        self._begun_column, self._ended_column = (self._cells[column::COLUMNS] for column in (BEGUN, ENDED))

    @classmethod
    def in_memory(cls, initial: Vector, shape: CenterShape) -> Center:
        """Return a center in this process's own memory, a copy of ``initial`` (shape (n_params,))."""
        vector = aligned_vector(shape.n_params)
        np.copyto(vector, initial)
        extras = tuple(np.zeros(shape.n_params, np.float32) for _ in range(shape.server_vectors))
        slots = np.zeros((shape.n_servers, shape.n_workers, COLUMNS), np.uint64)
        counts, turns = np.zeros((2, shape.n_chunks), np.uint64)
        return cls(_Parts(vector, extras, slots, counts, np.zeros(1, np.uint64), turns), None, b"")

    @classmethod
    def create(cls, initial: Vector, shape: CenterShape, *, run_id: int, work: Path) -> Center:
        """Make the file, readable by this user only, and map it.

        It lies in shared memory if there is room, else in ``work``. The space is reserved at once: a full disk is an
        error here and not a signal in the middle of training.

        Raises:
            ConfigError: No room in either place.
        """
        size = shape.n_bytes
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
                return cls.create(initial, shape, run_id=run_id, work=work)
            os.posix_fallocate(handle, 0, size)
            os.pwrite(handle, _HEADER.pack(_MAGIC, _VERSION, token, *astuple(shape)), 0)
            center = cls._map(handle, path)
        except OSError as error:
            os.close(handle)
            path.unlink(missing_ok=True)
            msg = f"{folder}: no room for a center of {size:,} bytes ({error.strerror}); free some, or move the run"
            raise ConfigError(msg) from error
        np.copyto(center.vector, initial)
        return center

    @classmethod
    def open(cls, path: Path, token: bytes | None = None, *, server: int = 0) -> Center:
        """Map an existing file.

        Args:
            path: As announced by the server.
            token: Announced too; a file with another one is a different host's or an older run's.
            server: Whose slots count this process's exchanges.

        Raises:
            FileNotFoundError, PermissionError: Not this host, or not this user.
            ProtocolError: The file is not this center.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            center = cls._map(handle, path, server)
        except (OSError, ProtocolError):
            os.close(handle)
            raise
        if token is not None and center.token != token:
            center.close()
            msg = f"{path}: belongs to another exchange (its token differs)"
            raise ProtocolError(msg)
        return center

    @classmethod
    def _map(cls, handle: int, path: Path, server: int = 0) -> Center:
        head = os.pread(handle, _HEADER.size, 0)
        if len(head) < _HEADER.size:
            msg = f"{path}: {len(head)} bytes; a center has a header of {_HEADER.size}"
            raise ProtocolError(msg)
        magic, version, token, *numbers = _HEADER.unpack(head)
        shape = CenterShape(*numbers)
        if magic != _MAGIC or version != _VERSION or os.fstat(handle).st_size != shape.n_bytes:
            msg = f"{path}: not a center file of version {_VERSION}"
            raise ProtocolError(msg)
        mapping = mmap.mmap(handle, shape.n_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        n_slots = shape.n_servers * shape.n_workers
        slots = np.frombuffer(mapping, np.uint64, n_slots * COLUMNS, _PAGE)
        slots = slots.reshape(shape.n_servers, shape.n_workers, COLUMNS)
        counts, turns = np.frombuffer(mapping, np.uint64, 2 * shape.n_chunks, shape.counts_offset).reshape(2, -1)
        vectors = [
            np.frombuffer(mapping, np.float32, shape.n_params, shape.vector_offset(i))
            for i in range(1 + shape.server_vectors)
        ]
        watched = np.frombuffer(mapping, np.uint64, 1, _WATCHED_OFFSET)
        parts = _Parts(vectors[0], tuple(vectors[1:]), slots, counts, watched, turns)
        return cls(parts, path, token, mapping, handle, server)

    def twin(self) -> Center:
        """Return another center over the same memory, with locks of its own; not to be closed."""
        return Center(self._parts, self.path, self.token)

    def use_locks(self, mode: LockMode, timeout_s: float) -> None:
        """Lock chunks or exchanges from now on; every process that maps the center must be told the same."""
        if mode != "none":
            self.locks = CenterLocks(mode, len(self.counts), self._handle, timeout_s)

    @property
    def n_params(self) -> int:
        """Length of the vector."""
        return len(self.vector)

    def result(self, strategy: Strategy) -> Vector:
        """Return the vector that workers go on from after a round."""
        return self.vector if strategy.result is None else self.extras[strategy.result]

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
        ended = self._total(self._ended_column) - own_ended
        begun = self._total(self._begun_column) - cells[row + BEGUN]
        staleness = ended - self._ended_at_pull.get(worker, ended)
        self._ended_at_pull[worker] = ended
        cells[row + PLACE] = cells[row + MARK] = 0
        cells[row + BEGUN] = own_ended + 1
        if staleness:
            cells[row + STALENESS] += staleness
        return Ticket(own_ended + 1, staleness, begun, begun - ended, ended + own_ended)

    def end(self, worker: int, ticket: Ticket, moved_bytes: int) -> int:
        """Close an exchange that moved so many bytes, up and down; returns how many of others were open during it."""
        cells, row = self._cells, worker * COLUMNS
        overlaps = ticket.others_open + self._total(self._begun_column) - ticket.sequence - ticket.others_begun
        if overlaps:
            cells[row + OVERLAPS] += overlaps
        cells[row + MOVED_BYTES] += moved_bytes
        cells[row + ENDED] = ticket.sequence
        return overlaps

    def abandon(self, worker: int) -> None:
        """Close what a worker that is gone left open; its next exchange has one number at every server."""
        slots = self.all_slots[:, worker]
        slots[:, (BEGUN, ENDED)] = slots[:, ENDED].max()
        slots[:, WATCH_BEGUN] = slots[:, WATCH_ENDED]

    def admit(self, worker: int, session: str) -> None:
        """Let every server know the process that is ``worker`` now."""
        self.all_slots[:, worker, SESSION] = _session_number(session)

    def is_admitted(self, worker: int, session: str) -> bool:
        """Whether ``session`` is the worker's present process."""
        return int(self.slots[worker, SESSION]) == _session_number(session)

    @property
    def watched(self) -> int:
        """Position of the chunk whose pushes are added up; -1 for none. Ask once the exchange is open."""
        return self._watched[0] - 1

    def watch(self, position: int) -> None:
        """Have the pushes of a chunk added up, by every exchange that begins from now on."""
        self._watched[0] = position + 1

    def begin_watched_push(self, worker: int) -> None:
        """A push to the watched chunk is about to be applied."""
        self._cells[worker * COLUMNS + WATCH_BEGUN] += 1

    def end_watched_push(self, worker: int, push: Vector) -> None:
        """It is applied: add ``push``, the watched part of it, to the worker's sums."""
        cells, sums, row = self._cells, self._float_cells, worker * COLUMNS
        total = float(_add_up(push, dtype=np.float64))
        sums[row + WATCH_SUM] += total
        sums[row + WATCH_SIZE] += abs(total)
        cells[row + WATCH_ENDED] = cells[row + WATCH_BEGUN]

    def pulled(self, worker: int) -> None:
        """Note that ``worker`` has just read the whole center."""
        self._ended_at_pull[worker] = self._total(self._ended_column) - self._cells[worker * COLUMNS + ENDED]

    def reopened(self, worker: int) -> Ticket:
        """Return a ticket for an exchange that an earlier server process opened."""
        begun = self._cells[worker * COLUMNS + BEGUN]
        return Ticket(begun, 0, self._total(self._begun_column) - begun, 0, self._total(self._ended_column))

    def _total(self, column: memoryview) -> int:
        if len(column) <= FEW_WORKERS:
            return sum(column)
        return int(np.asarray(column).sum())

    def unlink(self) -> None:
        """Remove the file; whoever maps it keeps its memory until it closes."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the mapping back. The arrays must not be used after."""
        empty = np.empty(0, np.float32)
        for cells in (self._begun_column, self._ended_column, self._cells, self._float_cells, self._watched):
            cells.release()
        self.vector, self.extras = empty, ()
        self.all_slots, self.counts = np.empty((1, 0, COLUMNS), np.uint64), np.empty(0, np.uint64)
        self.slots = self.all_slots[0]
        self.turns = self.counts
        none = np.zeros(1, np.uint64)
        self._parts = _Parts(self.vector, (), self.all_slots, self.counts, none, self.turns)
        if self._mapping is not None:
            # A view that a caller still holds keeps the mapping alive; it goes with that view.
            with suppress(BufferError):
                self._mapping.close()
            self._mapping = None
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Chunks:
    """One strategy's chunks over one vector: ranges in a worker's order and the statistics inside each.

    Attributes:
        watch_floats: Length of the watched part of a chunk, from its start: adding it up must cost next to nothing.
    """

    def __init__(self, n_params: int, chunk: int, strategy: Strategy, statistics: StatisticBlobs) -> None:
        """Cut the vector."""
        self.ranges = chunk_ranges(n_params, chunk)
        self.spans = tuple(slice(*span) for span in self.ranges)
        self.strategy = strategy
        # Statistics meet in their own way; in a push they are zero, which changes nothing. Alone they are copied.
        held = statistics if strategy.name != "alone" else StatisticBlobs()
        self.held = tuple(held.within(*span) for span in self.ranges) if held.layers else None
        self.watch_floats = max(MIN_WATCH_FLOATS, n_params // 200)
        self._views: tuple[Vector, tuple[Vector, ...]] | None = None

    def order(self, worker: int, n_workers: int, server: int = 0, n_servers: int = 1) -> Sequence[int]:
        """Return the positions of a server's chunks in the order in which a worker takes them.

        Each worker has a start of its own, so that workers rarely write the same chunk.
        """
        begin, end = (k * len(self.ranges) // n_servers for k in (server, server + 1))
        first = begin + worker * (end - begin) // n_workers
        return (*range(first, end), *range(begin, first))

    def views(self, vector: Vector) -> tuple[Vector, ...]:
        """Return the chunks of a vector as views; those of the last vector are kept, since a center stays one."""
        if self._views is None or self._views[0] is not vector:
            self._views = (vector, tuple([vector[span] for span in self.spans]))
        return self._views[1]

    def hold_statistics(self, position: int, push: Vector) -> None:
        """Take the statistics of one chunk out of a push."""
        if self.held is not None and len(self.held[position]):
            push[self.held[position]] = 0.0


def apply_push(center: Center, chunks: Chunks, position: int, push: Vector, terms: Terms) -> None:
    """Do the server's side of one chunk: change the center, or the strategy's own vectors and the chunk's count."""
    strategy, span = chunks.strategy, chunks.spans[position]
    if not center.extras:
        strategy.server_chunk(center.vector[span], (), push, terms, 0)
        return
    extras = tuple([extra[span] for extra in center.extras])
    held = int(center.counts[position])
    center.counts[position] = strategy.server_chunk(center.vector[span], extras, push, terms, held)


def meet_in_memory(
    center: Center,
    chunks: Chunks,
    worker: int,
    order: Sequence[int],
    terms: Terms,
    local: Vector,
    new_local: Vector,
    start: Vector,
    push: Vector,
    *,
    measure_distance: bool,
) -> float | None:
    """Push every chunk to a center that this process maps, and pull unless the strategy waits for a round.

    Args:
        center: Mapped or private.
        chunks: The vector's cut.
        worker: Who meets it; its exchange is open.
        order: Chunk positions in the order to take.
        terms: Numbers of this exchange.
        local: The worker's parameters, (n_params,), read only.
        new_local: Receives the new parameters, (n_params,).
        start: What the worker began with, (n_params,); see ``Strategy.keeps_start``.
        push: Scratch of at least one chunk.
        measure_distance: Return the L2 norm of local - center.

    Returns:
        The distance, or None if it was not asked for or the worker does not look at the center first.
    """
    strategy, watched = chunks.strategy, center.watched
    worker_chunk, server_chunk = strategy.worker_chunk, strategy.server_chunk
    measure = measure_distance and strategy.pulls == "before"
    pulls_after, keeps_start = strategy.pulls == "after", strategy.keeps_start
    held, is_direct = chunks.held is not None, not center.extras
    parts, spans = chunks.views(center.vector), chunks.spans
    squares = []

    def meet_chunk(position: int) -> None:
        span, part = spans[position], parts[position]
        own, new, pushed = local[span], new_local[span], push[: len(part)]
        if measure:
            np.subtract(own, part, out=pushed)
            squares.append(float(np.dot(pushed, pushed)))
        worker_chunk(own, part, new, pushed, start[span] if keeps_start else own, terms)
        if held:
            chunks.hold_statistics(position, pushed)
        if position == watched:
            center.begin_watched_push(worker)
        if is_direct:
            server_chunk(part, (), pushed, terms, 0)
        else:
            apply_push(center, chunks, position, pushed, terms)
        if position == watched:
            center.end_watched_push(worker, pushed[: chunks.watch_floats])
        if pulls_after:
            np.copyto(new, part)

    _visit(order, center.locks, meet_chunk)
    return sum(squares) ** 0.5 if measure else None


def _visit(order: Sequence[int], locks: ChunkLocks | None, meet_chunk: Callable[[int], None]) -> None:
    if locks is None:
        for position in order:
            meet_chunk(position)
        return
    with locks.whole():
        for position in order:
            with locks.chunk(position):
                meet_chunk(position)


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


def _session_number(session: str) -> int:
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "little")


def _pages(n_bytes: int) -> int:
    return -(-n_bytes // _PAGE) * _PAGE


def _has_room(folder: Path, size: int) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= size + SHARED_MEMORY_SPARE_BYTES
