"""The accept loop of a server: a thread for each connection, from the handshake to the last frame."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.exchange.transport.listening.gate import Gate
from deepspark_ops.exchange.transport.wire import Connection

_LOG: Final = logging.getLogger(__name__)
_BACKLOG: Final = 1_024
_RETRY_S: Final = 0.2


def listening_socket(host: str, port: int, *, subject: str, remedy: str) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: Address of this host.
        port: 0: chosen by the system.
        subject: Begin of the message of an error: option and value.
        remedy: End of the message.

    Raises:
        ConfigError: Address or port cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # Python adds the address
        msg = f"{subject}: {reason}; {remedy}"
        raise ConfigError(msg) from error


class Listener:
    """Accepts connections from ``start`` to ``stop``. Present connections go on if a new connection fails."""

    def __init__(
        self,
        sock: socket.socket,
        gate: Gate,
        serve: Callable[[Connection], None],
        *,
        limit_bytes: int,
        timeout_s: float,
        broken: int = logging.WARNING,
    ) -> None:
        """Take over a listening socket.

        Args:
            sock: See ``listening_socket``.
            gate: Lets connections in.
            serve: Serves a connection to the end, in the connection's thread. Errors of other kinds than of a
                connection are faults of this program: Python writes their traceback.
            limit_bytes: As of ``Connection``.
            timeout_s: Longest silence in the middle of a frame, and of a host that has vanished.
            broken: Level of the log's lines about broken and refused connections.
        """
        self._sock = sock
        self._gate = gate
        self._serve = serve
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        self._broken = broken
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._stopping = threading.Event()

    def start(self) -> None:
        """Accept connections."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def stop(self) -> None:
        """Accept no more connections, and close every connection. May be called again."""
        self._stopping.set()
        with suppress(OSError):  # wakes the accepting thread
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if not self._stopping.is_set():
                    # Most likely out of descriptors: present connections go on, new ones wait in the queue.
                    _LOG.warning("cannot accept a connection: %s", error)
                    self._stopping.wait(_RETRY_S)
                continue
            peer = f"{address[0]}:{address[1]}"
            try:
                sock = self._gate.take(sock, address[0])
            except OSError as error:
                _LOG.debug("connection of %s: %s", peer, error)
                continue
            thread = threading.Thread(
                target=self._greet_and_serve, args=(sock, peer), name=f"connection {peer}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # The system's limit of threads or memory: the other side connects again, and the next thread may start.
                _LOG.warning("connection of %s: %s", peer, error)
                self._gate.drop(sock)
                self._stopping.wait(_RETRY_S)

    def _greet_and_serve(self, sock: socket.socket, peer: str) -> None:
        """Serve a connection from the first byte to the last, in the connection's thread."""
        try:
            channel = self._gate.greet(sock, peer)
            if channel is None:
                return
            connection = Connection(
                channel,
                run_id=self._gate.run_id,
                limit_bytes=self._limit_bytes,
                timeout_s=self._timeout_s,
                vanished_s=self._timeout_s,
                peer=peer,
            )
            with self._present(connection):
                self._serve(connection)
        except (DeepSparkError, OSError) as error:
            if not self._stopping.is_set():
                _LOG.log(self._broken, "%s", error)
        finally:
            sock.close()

    @contextmanager
    def _present(self, connection: Connection) -> Iterator[None]:
        """Let ``stop`` close a connection."""
        with self._lock:
            self._connections.add(connection)
        try:
            if self._stopping.is_set():  # ``stop`` has not seen the connection
                connection.close()
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)
