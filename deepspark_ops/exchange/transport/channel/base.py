"""The interface between a connection and the bytes on its socket, and the channel of plain bytes."""

from __future__ import annotations

import errno
import socket
import struct
import time
from abc import ABC, abstractmethod
from typing import Literal

Protection = Literal["off", "mac", "tls"]
"""``off``: plain bytes. ``mac``: bytes with a code that detects changes. ``tls``: encrypted bytes."""

_TIMEVAL = struct.Struct("@ll")


class Channel(ABC):
    """The bytes of a connection, in both directions. One thread at a time; another thread may ``close``.

    Every method raises ``BlockingIOError`` while the other side sends or takes nothing, ``OSError`` after a break of
    the connection, and ``EBADMSG`` for changed bytes. After ``BlockingIOError`` the call may be repeated: a repeated
    send must begin with the same bytes.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        self.sock = sock

    @abstractmethod
    def use_timeout(self, timeout_s: float) -> None:
        """Limit every later wait."""

    @abstractmethod
    def send(self, parts: list[memoryview]) -> int:
        """Wait until a part of these byte views is sent, one after another; return the number of bytes.

        Small views may be replaced in the list by a view of their joined bytes.
        """

    @abstractmethod
    def send_now(self, parts: list[memoryview]) -> int:
        """Send as many bytes as possible without waiting."""

    @abstractmethod
    def receive(self, view: memoryview) -> int:
        """Wait for bytes into ``view``; return their number, 0 after a close by the other side."""

    @abstractmethod
    def receive_now(self, views: list[memoryview]) -> int:
        """Fill views one after another with arrived bytes; returns like ``receive``."""

    def finish(self, timeout_s: float) -> None:
        """Announce the end of sending, and drop arriving bytes until the other side closes or time is up."""
        deadline = time.monotonic() + timeout_s
        # The socket's own methods: an SSL socket's methods would drop the encryption, or decrypt unread bytes.
        socket.socket.shutdown(self.sock, socket.SHUT_WR)
        self.sock.settimeout(timeout_s)
        while time.monotonic() < deadline and socket.socket.recv(self.sock, 1 << 16):
            pass

    def close(self) -> None:
        """Close; a waiting thread of this channel wakes with an error."""
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            # The connection is gone already: closing is all that remains.
            pass
        self.sock.close()


class PlainChannel(Channel):
    """Plain bytes.

    The socket is blocking, with the kernel's timeouts: a chunk is one system call. ``MSG_DONTWAIT`` is used where both
    directions move at once.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        super().__init__(sock)
        sock.settimeout(None)

    def use_timeout(self, timeout_s: float) -> None:
        """See ``Channel``."""
        limit = _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1e6))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, parts: list[memoryview]) -> int:
        """See ``Channel``."""
        return self.sock.sendmsg(parts)

    def send_now(self, parts: list[memoryview]) -> int:
        """See ``Channel``."""
        return self.sock.sendmsg(parts, (), socket.MSG_DONTWAIT)

    def receive(self, view: memoryview) -> int:
        """See ``Channel``."""
        return self.sock.recv_into(view, view.nbytes, socket.MSG_WAITALL)

    def receive_now(self, views: list[memoryview]) -> int:
        """See ``Channel``."""
        return self.sock.recvmsg_into(views, 0, socket.MSG_DONTWAIT)[0]


def altered() -> OSError:
    """Return the error for bytes that were changed on the way."""
    return OSError(errno.EBADMSG, "what arrived is not what was sent; something on the network changes it")


def drop_sent(parts: list[memoryview], sent: int) -> None:
    """Remove the first ``sent`` bytes from a list of byte views, in place."""
    while parts and sent >= parts[0].nbytes:
        sent -= parts.pop(0).nbytes
    if sent:
        parts[0] = parts[0][sent:]
