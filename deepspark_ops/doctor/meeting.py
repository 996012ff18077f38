"""Checks whether executors reach the address of the exchange, and measures their clocks' offsets.

An executor sends the job's token and gets the driver's time. No other data is sent, and clients without the token get
no answer.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from types import TracebackType

TOKEN_BYTES = 32
_TIME = struct.Struct("<d")
_PEER_TIMEOUT_S = 10.0
_POLL_S = 0.2


def listen_ports(first: int, n_servers: int) -> list[int]:
    """Return the ports of a training's servers, those of the exchange first; a single 0 if the system chooses.

    Example:
        >>> listen_ports(7000, 3), listen_ports(0, 3)
        ([7000, 7001, 7002, 7003], [0])
    """
    return [first + index for index in range(n_servers + 1)] if first else [0]


class Meeting:
    """Listens in a thread until the ``with`` block ends.

    Attributes:
        addresses: Host and port of each listener.
        token: Token that executors send; travels in the tasks' closures, like the exchange's secret.
    """

    def __init__(self, host: str, *ports: int) -> None:
        """Listen.

        Raises:
            OSError: Address or a port cannot be used.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with ExitStack() as undo:
            self._listeners = [
                undo.enter_context(socket.create_server((host, port), family=family, backlog=128)) for port in ports
            ]
            undo.pop_all()
        for listener in self._listeners:
            listener.setblocking(False)
        self.addresses: list[tuple[str, int]] = [listener.getsockname()[:2] for listener in self._listeners]
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="meeting", daemon=True)

    def __enter__(self) -> Meeting:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the port."""
        self._is_over.set()
        self._thread.join(_PEER_TIMEOUT_S + 1.0)
        for listener in self._listeners:
            listener.close()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            ready, _, _ = select.select(self._listeners, [], [], _POLL_S)
            for listener in ready:
                with suppress(BlockingIOError, ConnectionError):  # the peer has disconnected
                    peer, _ = listener.accept()
                    threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            peer.settimeout(_PEER_TIMEOUT_S)
            try:
                if hmac.compare_digest(received(peer, TOKEN_BYTES), self.token):
                    peer.sendall(_TIME.pack(time.time()))
            except OSError:
                return  # the peer no longer waits


def visit(host: str, port: int, token: bytes, *, timeout_s: float = _PEER_TIMEOUT_S) -> tuple[float, float]:
    """Return (driver's clock minus this host's clock, uncertainty), both in seconds.

    Raises:
        OSError: The driver was not reached, or did not answer in time.
    """
    with socket.create_connection((host, port), timeout_s) as driver:
        driver.settimeout(timeout_s)
        sent = time.time()
        driver.sendall(token)
        (driver_time,) = _TIME.unpack(received(driver, _TIME.size))
        back = time.time()
    return driver_time - (sent + back) / 2, (back - sent) / 2


def received(peer: socket.socket, size: int) -> bytes:
    """Return ``size`` bytes from a peer.

    Raises:
        OSError: The peer closed the connection early.
    """
    data = b""
    while len(data) < size:
        if not (part := peer.recv(size - len(data))):
            msg = "closed the connection without an answer"
            raise ConnectionError(msg)
        data += part
    return data
