"""Bounds the connections whose peer has not yet proved knowledge of the run's secret.

Strangers may open connections and send nothing, and must not keep a worker out. Above the bound, a new connection
replaces the oldest connection of the address with the most connections. Authenticated connections do not count.
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
"""Bound of simultaneous handshakes, each with a thread."""
MAX_PENDING_OF_ADDRESS = 64
"""Bound of simultaneous handshakes of one address; half, so that one host cannot replace the connections of others."""
QUIET_S = 10.0
"""Interval between log lines about connections without a handshake: strangers must not fill the log."""

logger = logging.getLogger(__name__)


class PendingHandshakes:
    """The connections during authentication. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without connections; ``clock`` in seconds, never going back."""
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[socket.socket, str] = {}  # in the order of arrival
        self._n_unsaid = 0
        self._quiet_until = clock()

    def enter(self, sock: socket.socket, host: str) -> None:
        """Count a new connection from ``host``; above the bound, drop another connection."""
        with self._lock:
            if (crowded := self._crowded(host)) is not None:
                oldest = next(sock for sock, other in self._pending.items() if other == crowded)
                del self._pending[oldest]
                _wake(oldest)
            self._pending[sock] = host

    def leave(self, sock: socket.socket) -> None:
        """Stop counting a connection after its handshake, or without a handshake."""
        with self._lock:
            self._pending.pop(sock, None)

    @contextmanager
    def greeting(self, sock: socket.socket, peer: str) -> Iterator[None]:
        """Count a connection until its handshake ends, and log the reason of a failure.

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
        """Return the address that must lose a connection to a new connection from ``host``; None below the bound."""
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
        omitted = f"; {n_unsaid} other connections before it failed likewise" if n_unsaid else ""
        logger.warning("connection of %s was not let in: %s%s", peer, error, omitted)


def _wake(sock: socket.socket) -> None:
    """Shut a connection down; the waiting thread of the handshake closes the connection."""
    with suppress(OSError):  # already gone
        # Not the method of an SSL socket: this would drop the encryption while the other thread uses the socket.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
