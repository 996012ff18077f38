"""Access to a server of the exchange: the handshake of each new connection, with the run's protection."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.exchange.transport.channel.base import Channel, Protection
from deepspark_ops.exchange.transport.channel.handshake import greet_client
from deepspark_ops.exchange.transport.channel.tls import server_context, wrap
from deepspark_ops.exchange.transport.listening.handshakes import PendingHandshakes


@dataclass(frozen=True)
class ServerKeys:
    """Keys of a run's servers. The driver sends the keys by standard input; never in a file or a log.

    Attributes:
        secret: 32 bytes.
        protection: Of every connection.
        certificate: SHA-256 digest of the run's certificate; empty without TLS.
        pem: Private key and certificate; empty without TLS.
    """

    secret: bytes = field(repr=False)
    protection: Protection = "off"
    certificate: bytes = b""
    pem: bytes = field(default=b"", repr=False)

    def to_json(self) -> dict[str, str]:
        """Return plain JSON values."""
        return {
            "secret": self.secret.hex(),
            "protection": self.protection,
            "certificate": self.certificate.hex(),
            "pem": self.pem.decode(),
        }

    @classmethod
    def from_json(cls, plain: dict[str, str]) -> ServerKeys:
        """Inverse of ``to_json``."""
        protection: Protection = plain["protection"]  # type: ignore[assignment]
        secret, certificate = bytes.fromhex(plain["secret"]), bytes.fromhex(plain["certificate"])
        return cls(secret, protection, certificate, plain["pem"].encode())


class Gate:
    """Accepts connections with a proof of knowledge of the run's secret. Thread-safe.

    Attributes:
        run_id: The run.
    """

    def __init__(self, run_id: int, keys: ServerKeys) -> None:
        """Accept connections of this run."""
        self.run_id = run_id
        self._keys = keys
        self._pending = PendingHandshakes()
        self._context = server_context(keys.pem) if keys.protection == "tls" else None

    def take(self, sock: socket.socket, host: str) -> socket.socket:
        """Take an accepted connection; return the connection's new socket.

        Raises:
            OSError: The other side is gone; the socket is closed.
        """
        if self._context is not None:
            sock = wrap(sock, self._context, is_server=True)
        self._pending.enter(sock, host)
        return sock

    def drop(self, sock: socket.socket) -> None:
        """Close a socket of ``take`` that no thread greets."""
        self._pending.leave(sock)
        sock.close()

    def greet(self, sock: socket.socket, peer: str) -> Channel | None:
        """Return the channel of a socket of ``take``; None for a refused connection, with the reason in the log."""
        keys = self._keys
        try:
            with self._pending.greeting(sock, peer):
                return greet_client(
                    sock,
                    secret=keys.secret,
                    run_id=self.run_id,
                    peer=peer,
                    protection=keys.protection,
                    certificate=keys.certificate,
                )
        except DeepSparkError:
            return None
