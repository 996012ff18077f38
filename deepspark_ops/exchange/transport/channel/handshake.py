"""The proof of both sides of a new connection that they know the run's secret, before the first frame.

The proof is an HMAC-SHA256 over fresh nonces of both sides, so recorded bytes cannot be replayed. The HMAC also covers
the connection's protection, and with TLS the digest of the certificate that each side sees: a relay with another
certificate fails on both sides, even if the relay forwards the proofs. Nothing is negotiated, so no side can be talked
into a weaker protection: workers know the protection beforehand.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field

from deepspark_ops.errors import ExchangeUnavailable, HandshakeFailed, ProtocolError
from deepspark_ops.exchange.transport.channel.base import Channel, PlainChannel, Protection
from deepspark_ops.exchange.transport.channel.mac import MacChannel
from deepspark_ops.exchange.transport.channel.tls import TlsChannel, certificate_digest

MAGIC = b"DSPX"
VERSION = 9
"""Of the protocol: handshake and frames."""

NONCE_BYTES = 32
SECRET_BYTES = 32
HANDSHAKE_TIMEOUT_S = 10.0
"""A slower client is dropped; a worker tries again."""

_HELLO = struct.Struct("<4sB3xQ32s")
_PROOF = struct.Struct("<32s32s")
_VERDICT = struct.Struct("<B32s")


def greet_client(
    sock: socket.socket,
    *,
    secret: bytes,
    run_id: int,
    peer: str,
    protection: Protection = "off",
    certificate: bytes = b"",
) -> Channel:
    """Server's side of the handshake.

    Args:
        sock: Just accepted; with TLS an SSL socket that has not shaken hands yet.
        secret: The run's.
        run_id: The run.
        peer: Name of the other side in errors.
        protection: Protection of the later bytes.
        certificate: Digest of this server's certificate; empty without TLS.

    Raises:
        ProtocolError: The client does not know the secret, or saw another certificate.
        ExchangeUnavailable: The other side closed or was silent.
    """
    deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S
    _encrypt(sock, deadline, peer)
    nonce = secrets.token_bytes(NONCE_BYTES)
    _send_in_time(sock, _HELLO.pack(MAGIC, VERSION, run_id, nonce), deadline, peer)
    their_nonce, proof = _PROOF.unpack(_receive_in_time(sock, _PROOF.size, deadline, peer))
    shared = _Shared(secret, run_id, nonce, their_nonce, protection, certificate)
    if not hmac.compare_digest(proof, shared.derive(b"worker")):
        _send_in_time(sock, _VERDICT.pack(0, bytes(32)), deadline, peer)
        msg = f"{peer}: could not prove that it knows the run's secret; refused"
        raise ProtocolError(msg)
    _send_in_time(sock, _VERDICT.pack(1, shared.derive(b"server")), deadline, peer)
    return shared.channel(sock, is_server=True)


def greet_server(
    sock: socket.socket,
    *,
    secret: bytes,
    run_id: int,
    peer: str,
    timeout_s: float,
    protection: Protection = "off",
    certificate: bytes = b"",
) -> Channel:
    """Client's side of the handshake.

    Args:
        sock: Just connected; with TLS an SSL socket that has not shaken hands yet.
        secret: The run's.
        run_id: The run.
        peer: Name of the other side in errors.
        timeout_s: Longest wait for the whole handshake.
        protection: Protection of the later bytes.
        certificate: Digest of the run's certificate; empty without TLS.

    Raises:
        HandshakeFailed: Not our server, another run's, or the server refuses or does not know the secret. A byte
            that was changed on the way gives the same error.
        ProtocolError: The server has another certificate than the run's.
        ExchangeUnavailable: The other side closed or was silent.
    """
    deadline = time.monotonic() + timeout_s
    shown_certificate = _encrypt(sock, deadline, peer)
    if not hmac.compare_digest(shown_certificate, certificate):
        msg = (
            f"{peer} has another certificate than the run's (SHA-256 {shown_certificate.hex()[:16]}..., not"
            f" {certificate.hex()[:16]}...): something on the network stands between, or the address is an older run's"
        )
        raise ProtocolError(msg)
    magic, version, their_run, nonce = _HELLO.unpack(_receive_in_time(sock, _HELLO.size, deadline, peer))
    if magic != MAGIC or version != VERSION:
        msg = (
            f"{peer} does not speak protocol version {VERSION}: it begins with {magic!r}, version {version};"
            " install one version of deepspark on driver and executors"
        )
        raise HandshakeFailed(msg)
    if their_run != run_id:
        msg = f"{peer} serves run {their_run:016x}, not {run_id:016x}; is the address of an older run still in use?"
        raise HandshakeFailed(msg)
    own_nonce = secrets.token_bytes(NONCE_BYTES)
    shared = _Shared(secret, run_id, nonce, own_nonce, protection, shown_certificate)
    _send_in_time(sock, _PROOF.pack(own_nonce, shared.derive(b"worker")), deadline, peer)
    accepted, answer = _VERDICT.unpack(_receive_in_time(sock, _VERDICT.size, deadline, peer))
    if not accepted:
        msg = f"{peer} refused this process: its secret is not the run's"
        raise HandshakeFailed(msg)
    if not hmac.compare_digest(answer, shared.derive(b"server")):
        msg = f"{peer} could not prove that it knows the run's secret; not our server"
        raise HandshakeFailed(msg)
    return shared.channel(sock, is_server=False)


@dataclass(frozen=True)
class _Shared:
    """The values that both sides know at the end of a handshake.

    Attributes:
        secret: The run's.
        run_id: The run.
        server_nonce: Fresh, the server's.
        client_nonce: Fresh, the client's.
        protection: Protection of the later bytes.
        certificate: Digest of the server's certificate, as this side sees it; empty without TLS.
    """

    secret: bytes = field(repr=False)
    run_id: int
    server_nonce: bytes
    client_nonce: bytes
    protection: Protection
    certificate: bytes

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 bytes that only both sides of this connection know; different bytes for each purpose."""
        context = f" {self.protection} ".encode() + struct.pack("<Q", self.run_id) + self.certificate
        message = b"deepspark " + purpose + context + self.server_nonce + self.client_nonce
        return hmac.digest(self.secret, message, "sha256")

    def channel(self, sock: socket.socket, *, is_server: bool) -> Channel:
        """Return the channel for the later bytes."""
        if isinstance(sock, ssl.SSLSocket):
            return TlsChannel(sock)
        if self.protection == "mac":
            keys = self.derive(b"to worker"), self.derive(b"to server")
            send_key, receive_key = keys if is_server else keys[::-1]
            return MacChannel(sock, send_key=send_key, receive_key=receive_key)
        return PlainChannel(sock)


def _encrypt(sock: socket.socket, deadline: float, peer: str) -> bytes:
    """Make the TLS handshake of an SSL socket; return the digest of the other side's certificate."""
    if not isinstance(sock, ssl.SSLSocket):
        return b""
    _limit(sock, deadline, peer)
    try:
        sock.do_handshake()
    except (OSError, ValueError) as error:
        msg = f"{peer}: TLS handshake broke: {getattr(error, 'reason', None) or error}"
        raise ExchangeUnavailable(msg) from error
    return certificate_digest(sock.getpeercert(binary_form=True))


def _send_in_time(sock: socket.socket, data: bytes, deadline: float, peer: str) -> None:
    _limit(sock, deadline, peer)
    try:
        sock.sendall(data)
    except (OSError, ValueError) as error:  # a closed SSL socket raises ValueError
        msg = f"{peer}: handshake broke: {getattr(error, 'strerror', None) or error}"
        raise ExchangeUnavailable(msg) from error


def _receive_in_time(sock: socket.socket, size: int, deadline: float, peer: str) -> bytes:
    data = b""
    while len(data) < size:
        _limit(sock, deadline, peer)
        try:
            part = sock.recv(size - len(data))
        except (OSError, ValueError) as error:
            msg = f"{peer}: handshake broke: {getattr(error, 'strerror', None) or error}"
            raise ExchangeUnavailable(msg) from error
        if not part:
            msg = f"{peer} closed the connection during the handshake"
            raise ExchangeUnavailable(msg)
        data += part
    return data


def _limit(sock: socket.socket, deadline: float, peer: str) -> None:
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        msg = f"{peer} was too slow: waited for its part of the handshake"
        raise ExchangeUnavailable(msg)
    sock.settimeout(remaining_s)
