"""A process's connection to a server of the exchange, with reconnects and repeated requests."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Self, TypeVar

from deepspark_ops.errors import (
    ConfigError,
    DeepSparkError,
    ExchangeUnavailable,
    HandshakeFailed,
    ProtocolError,
    PushRefused,
    WorkerFenced,
    WorkerReplaced,
)
from deepspark_ops.events import DRIVER
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.channel.handshake import greet_server
from deepspark_ops.exchange.transport.channel.tls import client_context, wrap
from deepspark_ops.exchange.transport.wire import Connection, Frame

Transport = Literal["auto", "shm", "socket"]

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 1.0
HANDSHAKE_TRIES = 3
"""Handshakes that may fail in a row, e.g. by a bit that the network flips; a further failure is final. Each try has
fresh nonces, so that further tries tell a stranger nothing."""
ATTEMPT_SHARE = 0.4
"""Share of ``exchange_timeout_s`` that a connection may be silent. If the other side is gone without a word, e.g.
behind a router that forgot the connection, there is time for a further connection."""

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_REFUSALS = {error.__name__: error for error in (ConfigError, PushRefused, WorkerFenced, WorkerReplaced)}


@dataclass(frozen=True)
class ExchangeAddress:
    """Address and keys of a run's server. Travels inside the Spark task's closure.

    Attributes:
        host: Address the server listens on.
        port: Port of the server.
        run_id: The run.
        secret: 32 bytes; never in a file, an argument, the environment or a log.
        transport: ``auto``: shared memory where the center can be mapped, else the socket.
        exchange_timeout_s: Longest wait for the server.
        more_ports: Ports of the servers of further key ranges; the first server's range comes first.
        protection: Of every connection.
        certificate: SHA-256 digest of the run's certificate, the only one that is taken; empty without TLS.
    """

    host: str
    port: int
    run_id: int
    secret: bytes = field(repr=False)
    transport: Transport = "auto"
    exchange_timeout_s: float = 30.0
    more_ports: tuple[int, ...] = ()
    protection: Protection = "off"
    certificate: bytes = b""

    @property
    def server(self) -> str:
        """The other side's name in errors."""
        return f"exchange server {self.host}:{self.port}"

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON, the secret among them."""
        return {**asdict(self), "secret": self.secret.hex(), "certificate": self.certificate.hex()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the address from the result of ``to_plain``."""
        texts = {name: bytes.fromhex(plain[name]) for name in ("secret", "certificate")}
        return cls(**{**plain, **texts, "more_ports": tuple(plain["more_ports"])})


class _Unanswered(NamedTuple):
    """A sent request: ``receive`` reads the answer over ``connection``; over another one ``send`` comes again first."""

    connection: Connection | None
    send: Callable[[Connection], None]
    receive: Callable[[Connection], Any]

    def finish(self, connection: Connection, _: bool) -> Any:
        """Return the answer."""
        if connection is not self.connection:
            self.send(connection)
        return self.receive(connection)


class ServerConnection:
    """A connection to the server with reconnects: requests are repeated over a new connection until time is up.

    With ``confirms_later`` a request may be sent without a wait for its answer; the next request waits for the answers
    of both. Not thread-safe.
    """

    def __init__(self, address: ExchangeAddress, caller: str, *, confirms_later: bool = False) -> None:
        """Connect at the first request.

        Args:
            address: The server.
            caller: Name of this process in errors: ``worker 3``, ``driver``.
            confirms_later: Whether ``send`` returns before the answer.
        """
        self.address = address
        self.caller = caller
        self.limit_bytes = wire.MAX_JSON_BYTES
        self._connection: Connection | None = None
        self._sequence = 0
        self._confirms_later = confirms_later
        self._unanswered: list[_Unanswered] = []
        self._introduce: Callable[[Connection], None] | None = None

    def introduce_with(self, introduce: Callable[[Connection], None]) -> None:
        """Call ``introduce`` on every new connection, before any other frame is sent."""
        self._introduce = introduce

    def repeat(self, attempt: Callable[[Connection, bool], _Result]) -> _Result:
        """Call ``attempt(connection, is_repeated)`` until a call succeeds, after the answers of all sent requests.

        Raises:
            ExchangeUnavailable: Not within ``exchange_timeout_s``; the message counts the tries.
            HandshakeFailed: ``HANDSHAKE_TRIES`` handshakes failed, one after the other.
            ProtocolError: As raised by ``attempt``: repeating does not help.
        """
        self.settle()
        return self._repeat(attempt)

    def send(self, send: Callable[[Connection], None], receive: Callable[[Connection], Any]) -> None:
        """Send a repeatable request; ``confirms_later``: ``settle`` and every later request wait for the answer.

        Args:
            send: Sends the request; called again over a new connection if the connection breaks before the answer.
            receive: Reads the answer from the connection. Over one connection answers come in the order of requests.

        Raises:
            ExchangeUnavailable, HandshakeFailed, ProtocolError: As ``repeat``.
        """
        self._post(send, receive)
        if not self._confirms_later:
            self.settle()

    def _post(self, send: Callable[[Connection], None], receive: Callable[[Connection], Any]) -> None:
        connection = self._connection
        try:
            if connection is not None:
                send(connection)
        except ExchangeUnavailable as error:
            self._log_repeat(error)
            self.close()
            connection = None
        except ProtocolError:
            self.close()
            raise
        self._unanswered.append(_Unanswered(connection, send, receive))

    def settle(self) -> Any:
        """Wait for the answers of all sent requests; return the last answer.

        Raises:
            ExchangeUnavailable, HandshakeFailed, ProtocolError: As ``repeat``.
        """
        requests, self._unanswered = self._unanswered, []
        answer = None
        for request in requests:
            answer = self._repeat(request.finish)
        return answer

    def _repeat(self, attempt: Callable[[Connection, bool], _Result]) -> _Result:
        deadline = time.monotonic() + self.address.exchange_timeout_s
        backoff_s, tries, failed_handshakes = FIRST_BACKOFF_S, 0, 0
        while True:
            tries += 1
            try:
                return attempt(self._connected(deadline), tries > 1)
            except (ExchangeUnavailable, HandshakeFailed) as error:
                self.close()
                if isinstance(error, HandshakeFailed):
                    failed_handshakes += 1
                    if failed_handshakes == HANDSHAKE_TRIES:
                        raise
                else:
                    failed_handshakes = 0
                if time.monotonic() + backoff_s >= deadline:
                    raise self._given_up(tries, error) from error
                self._log_repeat(error)
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            except ProtocolError:
                self.close()
                raise

    def call(self, request: Mapping[str, Any], *, worker: int = DRIVER) -> Any:
        """Make a repeatable control call; return the answer."""
        self._post(*self._call(request, worker))
        return self.settle()

    def send_call(self, request: Mapping[str, Any], *, worker: int) -> None:
        """Make a repeatable control call without use of the answer, see ``send``."""
        self.send(*self._call(request, worker))

    def _call(
        self, request: Mapping[str, Any], worker: int
    ) -> tuple[Callable[[Connection], None], Callable[[Connection], Any]]:
        self._sequence += 1
        sequence = self._sequence
        return (
            lambda connection: connection.send_json(wire.CALL, request, worker=worker, sequence=sequence),
            lambda connection: expect_json(connection, wire.ANSWER),
        )

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self, deadline: float) -> Connection:
        if self._connection is not None:
            return self._connection
        address = self.address
        remaining_s = max(0.01, min(deadline - time.monotonic(), ATTEMPT_SHARE * address.exchange_timeout_s))
        try:
            sock = socket.create_connection((address.host, address.port), timeout=remaining_s)
            if address.protection == "tls":
                sock = wrap(sock, client_context(), is_server=False)
        except OSError as error:
            msg = f"cannot connect to {address.server}: {error.strerror or error}"
            raise ExchangeUnavailable(msg) from error
        try:
            channel = greet_server(
                sock,
                secret=address.secret,
                run_id=address.run_id,
                peer=address.server,
                timeout_s=remaining_s,
                protection=address.protection,
                certificate=address.certificate,
            )
            connection = Connection(
                channel,
                run_id=address.run_id,
                limit_bytes=self.limit_bytes,
                timeout_s=ATTEMPT_SHARE * address.exchange_timeout_s,
                vanished_s=address.exchange_timeout_s,
                peer=address.server,
            )
            if self._introduce is not None:
                self._introduce(connection)
        except (OSError, ExchangeUnavailable, ProtocolError):
            sock.close()
            raise
        self._connection = connection
        return connection

    def _log_repeat(self, error: DeepSparkError) -> None:
        logger.warning("%s: %s; trying again", self.caller, error)

    def _given_up(self, tries: int, error: DeepSparkError) -> ExchangeUnavailable:
        return ExchangeUnavailable(
            f"{self.caller}: no answer from {self.address.server} after"
            f" exchange_timeout_s={self.address.exchange_timeout_s:g}, {tries} tries; is the driver still running?"
            f" (last: {error})"
        )


def call_once(connection: Connection, request: Mapping[str, Any], worker: int, sequence: int) -> Any:
    """Send a control call and return the answer.

    Raises:
        ExchangeUnavailable: No answer.
        ProtocolError: The server refused.
    """
    connection.send_json(wire.CALL, request, worker=worker, sequence=sequence)
    return expect_json(connection, wire.ANSWER)


def expect_json(connection: Connection, operation: int) -> Any:
    """Wait for a frame of ``operation`` and return the frame's JSON."""
    return connection.receive_json(expect_frame(connection, operation))


def expect_frame(connection: Connection, operation: int) -> Frame:
    """Wait for a frame of ``operation``.

    Raises:
        ExchangeUnavailable: The connection was closed.
        ProtocolError, ConfigError: The server refused, or sent another frame.
    """
    frame = connection.receive_frame()
    if frame is None:
        msg = f"{connection.peer} closed the connection"
        raise ExchangeUnavailable(msg)
    if frame.operation == wire.ERROR:
        raise_refusal(connection.receive_json(frame))
    if frame.operation != operation:
        msg = f"{connection.peer} answered with operation {frame.operation}; expected {operation}"
        raise ProtocolError(msg)
    return frame


def raise_refusal(answer: Any) -> None:
    """Raise the error of an ``ERROR`` frame."""
    kind, message = str(answer.get("kind")), str(answer.get("message"))
    raise _REFUSALS.get(kind, ProtocolError)(message)
