"""Locks on a center's chunks that make every push survive: none, striped (a chunk) or full (an exchange).

``threading`` locks exclude threads of a process. Locks on byte ranges of the center's open file ("open file description
locks") exclude processes; the kernel releases the locks of a dead process.
"""

from __future__ import annotations

import fcntl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.exchange.strategies.base import LockMode

_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_FIRST_BYTE = 1 << 40
"""The locked bytes are far behind the end of any center file; each byte represents a chunk."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3


def set_lock(descriptor: int, byte: int, kind: int) -> bool:
    """Lock (``F_WRLCK``) or unlock (``F_UNLCK``) a byte of an open file; return False if another process has the lock.

    A negative descriptor stands for private memory: nothing is locked.
    """
    if descriptor < 0:
        return True
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, byte, 1, 0))
    except BlockingIOError:
        return False
    return True


def is_locked(descriptor: int, byte: int) -> bool:
    """Return whether another opening of the file has the lock of a byte; False for private memory."""
    if descriptor < 0:
        return False
    query = _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0)
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, query))
    return bool(kind != fcntl.F_UNLCK)


class CenterLocks:
    """The locks of a mapped center. Thread-safe; a thread never holds two locks."""

    def __init__(self, mode: LockMode, n_chunks: int, descriptor: int, timeout_s: float) -> None:
        """Make the locks.

        Args:
            mode: ``none``: nothing is ever locked. ``striped``: reading, computing and writing a chunk is one action.
                ``full``: so is a whole exchange.
            n_chunks: Chunks of the center.
            descriptor: Open center file; -1 for a center in private memory.
            timeout_s: Longest wait for a lock.
        """
        self.mode = mode
        self._descriptor = descriptor
        self._timeout_s = timeout_s
        self._chunks = tuple(threading.Lock() for _ in range(n_chunks)) if mode == "striped" else ()
        self._center_lock = threading.Lock()

    def chunk(self, position: int) -> AbstractContextManager[None]:
        """Hold chunk ``position`` within a ``with`` block; nothing in modes ``none`` and ``full``."""
        if self.mode != "striped":
            return nullcontext()
        return self._hold(self._chunks[position], 1 + position, f"chunk {position} of the center")

    def center(self) -> AbstractContextManager[None]:
        """Hold the center within a ``with`` block; nothing in modes ``none`` and ``striped``."""
        return self._hold(self._center_lock, 0, "the center") if self.mode == "full" else nullcontext()

    @contextmanager
    def _hold(self, lock: threading.Lock, byte: int, subject: str) -> Iterator[None]:
        if not lock.acquire(timeout=self._timeout_s):
            raise self._given_up(subject)
        try:
            self._lock_range(byte, subject)
            try:
                yield
            finally:
                self._set_range(byte, fcntl.F_UNLCK)
        finally:
            lock.release()

    def _lock_range(self, byte: int, subject: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        while not self._set_range(byte, fcntl.F_WRLCK):
            if time.monotonic() > deadline:
                raise self._given_up(subject)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _set_range(self, byte: int, kind: int) -> bool:
        return set_lock(self._descriptor, _FIRST_BYTE + byte, kind)

    def _given_up(self, subject: str) -> ExchangeUnavailable:
        return ExchangeUnavailable(f"waited {self._timeout_s:g} s for the lock of {subject}; is a worker stopped?")
