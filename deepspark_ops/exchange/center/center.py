"""The center: a parameter vector in memory that all processes of a host may map and write without locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deepspark_ops.errors import PushRefused, WorkerFenced, WorkerReplaced
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.locks import CenterLocks
from deepspark_ops.exchange.center.memory import CenterMemory, CenterShape
from deepspark_ops.exchange.center.push_check import PushCheck
from deepspark_ops.exchange.center.worker_counters import (
    BEGUN,
    COLUMNS,
    ENDED,
    LIVE,
    MOVED_BYTES,
    NOBODY,
    OVERLAPS,
    REFUSED,
    SESSION,
    STALENESS,
    WATCH_BEGUN,
    WATCH_ENDED,
    WATCH_SIZE,
    WATCH_SUM,
    session_number,
)
from deepspark_ops.exchange.strategies.base import ExchangeContext, LockMode, Strategy
from deepspark_ops.param_vector import Vector

FEW_WORKERS = 64
"""For at most so few workers, adding up a column in Python is faster than calling numpy."""
_add_up = np.add.reduce


class Center:
    """The center variable, its strategy's further vectors, counters per worker, one count per chunk.

    Every thread and process that maps the center writes without locks, unless ``locks`` is set.

    A reader sees, for each element, some value that was once written. The elements need not belong to one moment, and a
    part of a push can be lost where two pushes overlap (Hogwild). Each counter has a single writer: the worker in
    shared memory, otherwise the server's thread of the worker. 64-bit stores are whole on every machine with numpy. The
    caller owns the copy that ``snapshot`` returns.

    Attributes:
        vector: The center, shape (n_params,), float32, writable.
        extras: The strategy's server vectors, each (n_params,).
        counters: Counters of this process's server, shape (n_workers, 16), uint64; see ``worker_counters``.
        all_counters: Counters of every server, shape (n_servers, n_workers, 16).
        counts: Pushes of each chunk that ``extras`` hold and the center does not, shape (n_chunks,), uint64.
        unfinished: Of each chunk, what ``pushes`` notes while a push changes ``extras``; 0 for none, (n_chunks,).
        sessions: Number of each worker's present process, shape (n_workers,): what ``check_session`` looks at.
        locks: None until ``use_locks``.
        push_check: None until ``check_pushes``.
        path: The mapped file; None where the center is private memory.
        token: Random bytes in the file's head. A process that reads the same bytes maps the same memory.
    """

    def __init__(self, memory: CenterMemory, *, server: int | None = 0) -> None:
        """Use these arrays; see ``open``."""
        self.path = memory.path
        self.token = memory.token
        self.locks: CenterLocks | None = None
        self.push_check: PushCheck | None = None
        self._hold(memory, server or 0)
        other_servers = range(1, len(memory.all_counters)) if server is None else ()
        self._cells_of_others = [memory.all_counters[other].data.cast("B").cast("Q") for other in other_servers]
        self._ended_at_pull: dict[int, int] = {}
        # The same counters for single reads and writes: numpy's scalars are ten times slower.
        self._cells = self.counters.data.cast("B").cast("Q")
        self._float_cells = self.counters.data.cast("B").cast("d")
        self._watched = memory.watched.data
        self.sessions = self._cells[SESSION::COLUMNS]
        self._begun_column, self._ended_column = (self._cells[column::COLUMNS] for column in (BEGUN, ENDED))
        self._n_workers = len(self.counters)
        self._total: Callable[[memoryview], int] = sum if self._n_workers <= FEW_WORKERS else _total_of_many

    @classmethod
    def in_memory(cls, initial: Vector, shape: CenterShape) -> Center:
        """Return a center in this process's own memory, a copy of ``initial`` (shape (n_params,))."""
        return cls(CenterMemory.private(initial, shape))

    @classmethod
    def create(cls, initial: Vector, shape: CenterShape, *, run_id: int, work: Path) -> Center:
        """Return a center in a new file; see ``CenterMemory.create``."""
        return cls(CenterMemory.create(initial, shape, run_id=run_id, work=work))

    @classmethod
    def open(cls, path: Path, token: bytes | None = None, *, server: int | None = 0) -> Center:
        """Return the center of an existing file; see ``CenterMemory.open``.

        Args:
            path: The file.
            token: As in ``CenterMemory.open``.
            server: The server with the counters of this process's exchanges. None: all servers. An exchange in shared
                memory moves the whole center, and exchanges by socket at each server count it as staleness.
        """
        return cls(CenterMemory.open(path, token), server=server)

    def _hold(self, memory: CenterMemory, server: int = 0) -> None:
        self._memory = memory
        self.vector, self.extras = memory.vector, memory.extras
        self.counts, self.unfinished = memory.counts, memory.unfinished
        self.all_counters, self.counters = memory.all_counters, memory.all_counters[server]

    def use_locks(self, mode: LockMode, timeout_s: float) -> None:
        """Lock chunks or exchanges; every process that maps the center must do the same."""
        if mode != "none":
            self.locks = CenterLocks(mode, len(self.counts), self._memory.handle, timeout_s)

    def check_pushes(self, strategy: Strategy, *, samples: bool = False) -> None:
        """Refuse nonsense pushes of this process, see ``PushCheck``. Searching strategies may push such numbers."""
        if not strategy.repeats_data:
            self.push_check = PushCheck(len(self.counts), samples=samples)

    def refuse_push(self, worker: int, subject: str, error: PushRefused) -> PushRefused:
        """Count a refused push of ``worker``, and return the error for the worker's process."""
        self._cells[worker * COLUMNS + REFUSED] += 1
        return PushRefused(f"worker {worker}: {subject} refused: {error}; the center keeps what it had")

    @property
    def live_workers(self) -> int:
        """Number of workers that are there; all workers of the run before ``note_live_workers``."""
        return self._cells[LIVE] or self._n_workers

    def note_live_workers(self, n_live: int) -> None:
        """Write the number of present workers, for every process that maps the center."""
        if n_live != self._cells[LIVE]:
            self.all_counters[:, 0, LIVE] = n_live

    @property
    def n_params(self) -> int:
        """Length of the vector."""
        return len(self.vector)

    def result(self, strategy: Strategy) -> Vector:
        """Return the vector that workers continue from after a round."""
        return self.vector if strategy.result is None else self.extras[strategy.result]

    def snapshot(self) -> Vector:
        """Return a copy of the center, shape (n_params,), aligned to 64 bytes."""
        copy = aligned_vector(self.n_params)
        np.copyto(copy, self.vector)
        return copy

    def begin(self, worker: int, moving_rate: float = 0.0, session: int = NOBODY) -> ExchangeContext:
        """Open an exchange of ``worker``, and count the exchanges of others since the worker's last pull.

        Args:
            worker: Id of the worker.
            moving_rate: alpha.
            session: Number of the process; see ``session_number``.

        Raises:
            WorkerFenced: Another process is the worker now.
        """
        if self.sessions[worker] != session:
            self.check_session(worker, session)
        cells, row = self._cells, worker * COLUMNS
        own_ended = cells[row + ENDED]
        ended = self._total(self._ended_column) - own_ended
        begun = self._total(self._begun_column) - cells[row + BEGUN]
        staleness = ended - self._ended_at_pull.get(worker, ended)
        self._ended_at_pull[worker] = ended
        cells[row + BEGUN] = own_ended + 1
        for cells_of_other in self._cells_of_others:
            cells_of_other[row + BEGUN] = own_ended + 1
        if staleness > 0:
            cells[row + STALENESS] += staleness
        return ExchangeContext(
            self.live_workers, moving_rate, staleness, own_ended, ended + own_ended, begun, begun - ended, session
        )

    def end(self, worker: int, context: ExchangeContext, moved_bytes: int) -> int:
        """Close an exchange, with ``moved_bytes`` up and down; return the number of overlapping exchanges.

        Raises:
            WorkerFenced: Another process is the worker now; the exchange is not counted.
        """
        if self.sessions[worker] != context.session:
            self.check_session(worker, context.session)
        cells, row = self._cells, worker * COLUMNS
        sequence = context.ended_before + 1
        overlaps = context.others_open + self._total(self._begun_column) - sequence - context.others_begun
        if overlaps > 0:
            cells[row + OVERLAPS] += overlaps
        cells[row + MOVED_BYTES] += moved_bytes
        cells[row + ENDED] = sequence
        for cells_of_other in self._cells_of_others:
            cells_of_other[row + ENDED] = sequence
        return overlaps

    def abandon(self, worker: int) -> None:
        """Close the open exchange of a lost worker, so that the worker's next exchange has one number at every server.

        A stopped process gets ``WorkerFenced`` as soon as the process continues with the exchange.
        """
        counters = self.all_counters[:, worker]
        if (counters[:, BEGUN] > counters[:, ENDED]).any():
            counters[:, SESSION] = NOBODY
        counters[:, (BEGUN, ENDED)] = counters[:, ENDED].max()
        counters[:, WATCH_BEGUN] = counters[:, WATCH_ENDED]

    def admit(self, worker: int, session: str) -> None:
        """Write the number of the worker's present process at every server."""
        self.all_counters[:, worker, SESSION] = session_number(session)

    def check_session(self, worker: int, session: int) -> None:
        """Check the session of a process. No lock keeps a newer process from taking the worker's place.

        Raises:
            WorkerFenced, WorkerReplaced: It is not; it must leave.
        """
        current = self.sessions[worker]
        if current == session:
            return
        if current != NOBODY:
            msg = f"worker {worker}: a newer process has taken its place; leaving"
            raise WorkerReplaced(msg)
        msg = f"worker {worker}: silent for so long that it was given up in the middle of an exchange; leaving"
        raise WorkerFenced(msg)

    @property
    def watched(self) -> int:
        """Position of the chunk with added-up pushes; -1 for none. Read the position after ``begin``."""
        return self._watched[0] - 1

    def watch(self, position: int) -> None:
        """Add up the pushes of a chunk in every later exchange."""
        self._watched[0] = position + 1

    def begin_watched_push(self, worker: int) -> None:
        """Note that a push to the watched chunk begins."""
        self._cells[worker * COLUMNS + WATCH_BEGUN] += 1

    def end_watched_push(self, worker: int, push: Vector) -> None:
        """Note that a push to the watched chunk is applied, and add ``push`` to the worker's sums."""
        cells, sums, row = self._cells, self._float_cells, worker * COLUMNS
        total = float(_add_up(push, dtype=np.float64))
        sums[row + WATCH_SUM] += total
        sums[row + WATCH_SIZE] += abs(total)
        cells[row + WATCH_ENDED] = cells[row + WATCH_BEGUN]

    def pulled(self, worker: int) -> None:
        """Note that ``worker`` has just read the whole center."""
        self._ended_at_pull[worker] = self._total(self._ended_column) - self._cells[worker * COLUMNS + ENDED]

    def reopened(self, worker: int, moving_rate: float, session: int) -> ExchangeContext:
        """Return the context of an open exchange after a restart of the server."""
        begun, total = self._cells[worker * COLUMNS + BEGUN], self._total(self._ended_column)
        return ExchangeContext(
            self.live_workers,
            moving_rate,
            ended_before=begun - 1,
            total=total,
            others_begun=self._total(self._begun_column) - begun,
            session=session,
        )

    def unlink(self) -> None:
        """Remove the file; other processes keep their mapping until ``close``."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the mapping. The arrays must not be used afterwards; a reference to an array keeps the memory."""
        for cells in (
            self.sessions,
            self._begun_column,
            self._ended_column,
            self._cells,
            self._float_cells,
            self._watched,
            *self._cells_of_others,
        ):
            cells.release()
        if self._memory.handle >= 0:
            os.close(self._memory.handle)
        self._hold(CenterMemory.private(np.empty(0, np.float32), CenterShape(0, 0, 0)))


def _total_of_many(column: memoryview) -> int:
    return int(np.asarray(column).sum())
