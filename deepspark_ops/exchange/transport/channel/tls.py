"""Bytes in TLS 1.3, by the standard library.

The server's certificate is made for the run and signed by itself. Clients know its SHA-256 digest beforehand and refuse
any other certificate. The handshake inside the encryption covers the digest and decides who may connect.
"""

from __future__ import annotations

import functools
import hashlib
import os
import select
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from deepspark_ops.exchange.transport.channel.base import Channel, altered

RECORD_BYTES = 16 << 10
"""Largest payload of a TLS record: smaller consecutive views are sent in one record."""
SLICE_BYTES = 128 << 10
"""Bytes encrypted by one call: encrypted bytes must be sent, and the other direction waits meanwhile."""

_Result = TypeVar("_Result")
_ALTERED = {"DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "SSLV3_ALERT_BAD_RECORD_MAC", "WRONG_VERSION_NUMBER"}
"""OpenSSL's names for a record that was changed on the way, at either side."""
_BROKEN = (ssl.SSLError, ValueError, AttributeError)
"""The last two are the errors of a socket that another thread has closed: before a call, and during a call."""


def server_context(pem: bytes) -> ssl.SSLContext:
    """Return the context of a server's connections.

    Args:
        pem: The run's private key and certificate. They go through memory that only this process can name, since the
            library takes nothing but files.
    """
    context = _only_tls_1_3(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # a returning connection makes a new handshake
    handle = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(handle, pem)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return context


@functools.cache
def client_context() -> ssl.SSLContext:
    """Return the context of a client's connections; ``certificate_digest`` replaces authorities."""
    context = _only_tls_1_3(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def wrap(sock: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> ssl.SSLSocket:
    """Return an SSL socket that replaces ``sock``; no byte is sent before the handshake.

    Raises:
        OSError: The other side is gone.
    """
    return context.wrap_socket(sock, server_side=is_server, do_handshake_on_connect=False)


def certificate_digest(der: bytes | None) -> bytes:
    """Return the SHA-256 digest of a certificate's DER bytes."""
    return hashlib.sha256(der or b"").digest()


class TlsChannel(Channel):
    """A channel over an SSL socket after its handshake."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        """Take over the socket and make it non-blocking; this class does the waiting.

        The library's waiting has a timeout for each call, and its errors tell less.
        """
        super().__init__(sock)
        sock.setblocking(False)
        self._read, self._write = sock.read, sock.write
        self._timeout_ms = 0.0
        self._poll = select.poll()
        self._descriptor = sock.fileno()
        self._poll.register(self._descriptor, select.POLLIN)

    def use_timeout(self, timeout_s: float) -> None:
        """See ``Channel``."""
        self._timeout_ms = 1000 * timeout_s

    def send(self, parts: list[memoryview]) -> int:
        """See ``Channel``."""
        return self._waiting(lambda: self._send_once(parts))

    def send_now(self, parts: list[memoryview]) -> int:
        """See ``Channel``."""
        return self._at_once(lambda: self._send_once(parts))

    def receive(self, view: memoryview) -> int:
        """See ``Channel``."""
        return self._waiting(lambda: self._read(view.nbytes, view))  # type: ignore[return-value]

    def receive_now(self, views: list[memoryview]) -> int:
        """See ``Channel``; fills the first view only."""
        return self._at_once(lambda: self._read(views[0].nbytes, views[0]))  # type: ignore[return-value]

    def _send_once(self, parts: list[memoryview]) -> int:
        if len(parts) > 1 and parts[0].nbytes < RECORD_BYTES:
            _join_first(parts)
        return self._write(parts[0][:SLICE_BYTES])

    def _waiting(self, act: Callable[[], _Result]) -> _Result:
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
            except _BROKEN as error:
                raise _broken(error) from error

    def _at_once(self, act: Callable[[], _Result]) -> _Result:
        try:
            return act()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except _BROKEN as error:
            raise _broken(error) from error

    def _wait(self, event: int) -> None:
        self._poll.modify(self._descriptor, event)
        if not self._poll.poll(self._timeout_ms):
            raise BlockingIOError


def _only_tls_1_3(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _join_first(parts: list[memoryview]) -> None:
    """Join the first views up to the size of a record: each call makes a record, and headers are short."""
    joined = bytearray()
    while parts and len(joined) < RECORD_BYTES:
        piece = parts[0][: RECORD_BYTES - len(joined)]
        joined += piece
        if piece.nbytes == parts[0].nbytes:
            del parts[0]
        else:
            parts[0] = parts[0][piece.nbytes :]
    parts.insert(0, memoryview(joined))


def _broken(error: Exception) -> OSError:
    """Return the error of a broken connection."""
    if isinstance(error, ssl.SSLError):
        return altered() if error.reason in _ALTERED else OSError(error.errno, f"TLS: {error.reason or error}")
    return OSError("closed")
