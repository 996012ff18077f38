"""What a run must remember so that it can be run again in the same order, and the reading of it.

Per worker: the grants and leases it got, and of every pull and exchange the turn that each chunk of the center had: the
how-manieth action on that chunk it was. With locks an action on a chunk is one whole, so whoever repeats all workers'
actions with every chunk's turns in order gets the same center, bit for bit. One JSON object a line, in ``worker_<i>``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.center.locks import ChunkLocks
from deepspark_ops.exchange.state.grants import Grant
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.state.state_calls import GRANT_CALLS

Turns = Sequence[int]


class TurnLocks:
    """Locks that note the turn of each chunk that they are held for. Used by one thread at a time."""

    def __init__(self, locks: ChunkLocks, turns: npt.NDArray[np.uint64]) -> None:
        """Count in ``turns``, shape (n_chunks,), which all processes share and ``locks`` guard."""
        self._locks = locks
        self._turns = turns
        self._taken = [0] * len(turns)

    @contextmanager
    def chunk(self, position: int) -> Iterator[None]:
        """See ``ChunkLocks``."""
        with self._locks.chunk(position):
            self._turns[position] += np.uint64(1)
            self._taken[position] = int(self._turns[position])
            yield

    @contextmanager
    def whole(self) -> Iterator[None]:
        """See ``ChunkLocks``."""
        with self._locks.whole():
            yield

    def taken(self) -> Turns:
        """Return the last turn of each chunk, by position."""
        return list(self._taken)


class WorkerRecord:
    """Writes one worker's record. Thread-safe; a line is written before what it tells of has consequences."""

    def __init__(self, folder: Path, worker: int) -> None:
        """Begin, or go on after a restart, which the record says: such a run cannot be repeated."""
        folder.mkdir(parents=True, exist_ok=True)
        path = _path(folder, worker)
        self._lock = threading.Lock()
        is_restart = path.exists()
        self._file = path.open("a", encoding="utf-8")
        if is_restart:
            self._write({"restarted": True})

    def answer(self, ask: str, answer: Any) -> None:
        """A control call was answered; grants and leases are kept."""
        if ask in GRANT_CALLS and "grant" in answer:
            self._write({"grant": answer["grant"]})
        elif ask == "lease" and answer is not None:
            self._write({"lease": answer})

    def pulled(self, turns: Turns) -> None:
        """The worker took the center to go on from."""
        self._write({"turns": turns})

    def exchanged(self, staleness: int, total: int, turns: Turns) -> None:
        """The worker met the center; staleness and total as in ``ExchangeContext``."""
        self._write({"staleness": staleness, "total": total, "turns": turns})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, plain: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(plain) + "\n")
            self._file.flush()


@dataclass(frozen=True)
class Meeting:
    """A pull or an exchange: the turn of each chunk, and for an exchange the numbers that strategies see."""

    turns: Turns
    staleness: int = 0
    total: int = 0


@dataclass(frozen=True)
class RecordedWorker:
    """One worker's record; leases by dataset."""

    grants: list[Grant] = field(default_factory=list)
    leases: dict[str, list[Lease]] = field(default_factory=dict)
    meetings: list[Meeting] = field(default_factory=list)


def read_record(folder: Path, n_workers: int) -> list[RecordedWorker]:
    """Return every worker's record.

    Raises:
        ConfigError: There is none, or a worker was started again.
    """
    return [_read_worker(_path(folder, worker)) for worker in range(n_workers)]


def _read_worker(path: Path) -> RecordedWorker:
    if not path.is_file():
        msg = f"{path}: no such record; a run is recorded with --record and then has one of each of its workers"
        raise ConfigError(msg)
    found = RecordedWorker()
    for line in path.read_text(encoding="utf-8").splitlines():
        plain = json.loads(line)
        if "restarted" in plain:
            msg = f"{path}: this worker was started again in the middle; such a run cannot be repeated"
            raise ConfigError(msg)
        if "grant" in plain:
            found.grants.append(Grant(**plain["grant"]))
        elif "lease" in plain:
            lease = Lease(**plain["lease"])
            found.leases.setdefault(lease.dataset, []).append(lease)
        else:
            found.meetings.append(Meeting(**plain))
    return found


def _path(folder: Path, worker: int) -> Path:
    return folder / f"worker_{worker}.jsonl"
