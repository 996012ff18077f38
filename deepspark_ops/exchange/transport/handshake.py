"""How both sides of a new connection prove that they know the run's secret, before the first frame.

HMAC-SHA256 over fresh nonces of both, so that nothing recorded can be replayed.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time

from deepspark_ops.errors import ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport.wire import MAGIC, VERSION

NONCE_BYTES = 32
SECRET_BYTES = 32
HANDSHAKE_TIMEOUT_S = 2.0
"""A client that takes longer is dropped; one of ours tries again."""

_HELLO = struct.Struct("<4sB3xQ32s")
_PROOF = struct.Struct("<32s32s")
_VERDICT = struct.Struct("<B32s")


def greet_client(sock: socket.socket, *, secret: bytes, run_id: int, peer: str) -> None:
    """Server's side of the handshake.

    Raises:
        ProtocolError: The client does not know the secret.
        ExchangeUnavailable: It closed or was silent.
    """
    deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S
    nonce = secrets.token_bytes(NONCE_BYTES)
    _send_in_time(sock, _HELLO.pack(MAGIC, VERSION, run_id, nonce), deadline, peer)
    their_nonce, proof = _PROOF.unpack(_receive_in_time(sock, _PROOF.size, deadline, peer))
    if not hmac.compare_digest(proof, _proof(secret, b"worker", run_id, nonce, their_nonce)):
        _send_in_time(sock, _VERDICT.pack(0, bytes(32)), deadline, peer)
        msg = f"{peer}: could not prove that it knows the run's secret; refused"
        raise ProtocolError(msg)
    answer = _proof(secret, b"server", run_id, nonce, their_nonce)
    _send_in_time(sock, _VERDICT.pack(1, answer), deadline, peer)


def greet_server(sock: socket.socket, *, secret: bytes, run_id: int, peer: str, timeout_s: float) -> None:
    """Client's side of the handshake.

    Raises:
        ProtocolError: Not our server, another run's, or it refuses or does not know the secret.
        ExchangeUnavailable: It closed or was silent.
    """
    deadline = time.monotonic() + timeout_s
    magic, version, their_run, nonce = _HELLO.unpack(_receive_in_time(sock, _HELLO.size, deadline, peer))
    if magic != MAGIC or version != VERSION:
        msg = f"{peer} does not speak protocol version {VERSION}: it begins with {magic!r}, version {version}"
        raise ProtocolError(msg)
    if their_run != run_id:
        msg = f"{peer} serves run {their_run:016x}, not {run_id:016x}; is the address of an older run still in use?"
        raise ProtocolError(msg)
    own_nonce = secrets.token_bytes(NONCE_BYTES)
    proof = _proof(secret, b"worker", run_id, nonce, own_nonce)
    _send_in_time(sock, _PROOF.pack(own_nonce, proof), deadline, peer)
    accepted, answer = _VERDICT.unpack(_receive_in_time(sock, _VERDICT.size, deadline, peer))
    if not accepted:
        msg = f"{peer} refused this process: its secret is not the run's"
        raise ProtocolError(msg)
    if not hmac.compare_digest(answer, _proof(secret, b"server", run_id, nonce, own_nonce)):
        msg = f"{peer} could not prove that it knows the run's secret; not our server"
        raise ProtocolError(msg)


def _proof(secret: bytes, role: bytes, run_id: int, server_nonce: bytes, client_nonce: bytes) -> bytes:
    message = b"deepspark " + role + struct.pack("<Q", run_id) + server_nonce + client_nonce
    return hmac.digest(secret, message, "sha256")


def _send_in_time(sock: socket.socket, data: bytes, deadline: float, peer: str) -> None:
    _limit(sock, deadline, peer)
    try:
        sock.sendall(data)
    except OSError as error:
        msg = f"{peer}: handshake broke: {error.strerror or error}"
        raise ExchangeUnavailable(msg) from error


def _receive_in_time(sock: socket.socket, size: int, deadline: float, peer: str) -> bytes:
    data = b""
    while len(data) < size:
        _limit(sock, deadline, peer)
        try:
            part = sock.recv(size - len(data))
        except OSError as error:
            msg = f"{peer}: handshake broke: {error.strerror or error}"
            raise ExchangeUnavailable(msg) from error
        if not part:
            msg = f"{peer} closed the connection during the handshake"
            raise ExchangeUnavailable(msg)
        data += part
    return data


def _limit(sock: socket.socket, deadline: float, peer: str) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        msg = f"{peer} was too slow: waited for its part of the handshake"
        raise ExchangeUnavailable(msg)
    sock.settimeout(left)
