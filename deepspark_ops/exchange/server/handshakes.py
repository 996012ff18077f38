"""Connections whose peer has not yet proved that it knows the run's secret: few at a time, and the newest ones.

Whoever reaches the port may open connections and say nothing. They must not keep a worker out: where there are too
many, the oldest of the address that has most is dropped for the new one. Connections that are authenticated do not
count.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from deepspark_ops.errors import DeepSparkError

MAX_PENDING = 128
"""Handshakes at the same time, each with a thread."""
MAX_PENDING_OF_ADDRESS = 64
"""Handshakes at the same time with one address; half, so that one host cannot push out all others."""
QUIET_S = 10.0
"""Between two lines of the log about connections without a handshake: strangers must not fill it."""

logger = logging.getLogger(__name__)


class PendingHandshakes:
    """The connections that are being authenticated. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with none; ``clock`` in seconds, never going back."""
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[socket.socket, str] = {}  # in the order of their arrival
        self._n_unsaid = 0
        self._quiet_until = clock()

    def enter(self, sock: socket.socket, host: str) -> None:
        """Take a new connection from ``host``; another one is dropped if there are too many."""
        with self._lock:
            if (crowded := self._crowded(host)) is not None:
                oldest = next(sock for sock, other in self._pending.items() if other == crowded)
                del self._pending[oldest]
                _wake(oldest)
            self._pending[sock] = host

    def leave(self, sock: socket.socket) -> None:
        """Count a connection no longer: its handshake is over, or did not begin."""
        with self._lock:
            self._pending.pop(sock, None)

    @contextmanager
    def greeting(self, sock: socket.socket, peer: str) -> Iterator[None]:
        """Hold the place of a connection for the time of its handshake, and note in the log how it failed.

        Raises:
            DeepSparkError: The handshake's.
        """
        try:
            yield
        except DeepSparkError as error:
            self._note(peer, error)
            raise
        finally:
            self.leave(sock)

    def _crowded(self, host: str) -> str | None:
        """Return the address that must give a place up for a new connection from ``host``; None if there is room."""
        of_address = Counter(self._pending.values())
        if of_address[host] >= MAX_PENDING_OF_ADDRESS:
            return host
        if len(self._pending) >= MAX_PENDING:
            return of_address.most_common(1)[0][0]
        return None

    def _note(self, peer: str, error: DeepSparkError) -> None:
        with self._lock:
            now = self._clock()
            if now < self._quiet_until:
                self._n_unsaid += 1
                return
            n_unsaid, self._n_unsaid = self._n_unsaid, 0
            self._quiet_until = now + QUIET_S
        before = f"; {n_unsaid} other connections before it failed likewise" if n_unsaid else ""
        logger.warning("connection of %s was not let in: %s%s", peer, error, before)


def _wake(sock: socket.socket) -> None:
    """End a connection under the thread that waits for its handshake, which closes it."""
    with suppress(OSError):  # already gone
        # Not the method of an SSL socket: it would forget the encryption under the other thread's hands.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
