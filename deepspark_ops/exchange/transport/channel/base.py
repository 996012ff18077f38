"""What a connection asks of the bytes below it, and the channel that sends them as they are."""

from __future__ import annotations

import errno
import socket
import struct
import time
from abc import ABC, abstractmethod
from typing import Literal

Protection = Literal["off", "mac", "tls"]
"""``off``: bytes as they are. ``mac``: what is changed on the way is refused. ``tls``: encrypted as well."""

_TIMEVAL = struct.Struct("@ll")


class Channel(ABC):
    """The bytes of one connection, in both directions. One thread at a time; another one may ``close``.

    Every method raises ``BlockingIOError`` where the other side is silent or takes nothing, and ``OSError`` where the
    connection is broken; what was changed on the way is ``EBADMSG``. A call that ended in ``BlockingIOError`` may be
    repeated: bytes to send must then begin with the same ones.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        self.sock = sock

    @abstractmethod
    def use_timeout(self, timeout_s: float) -> None:
        """Wait no longer than this from now on."""

    @abstractmethod
    def send(self, parts: list[memoryview]) -> int:
        """Wait until some of these byte views are sent, one after another; returns how many bytes.

        Small views may be replaced in the list by one with their bytes.
        """

    @abstractmethod
    def send_now(self, parts: list[memoryview]) -> int:
        """Send what can be sent without waiting."""

    @abstractmethod
    def receive(self, view: memoryview) -> int:
        """Wait for bytes into ``view``; returns how many, 0 if the other side has closed."""

    @abstractmethod
    def receive_now(self, views: list[memoryview]) -> int:
        """Fill views one after another with what has arrived; returns like ``receive``."""

    def finish(self, timeout_s: float) -> None:
        """Say that nothing more is sent, and drop what still arrives, until the other side closes or time is up."""
        deadline = time.monotonic() + timeout_s
        # The socket's own methods: an SSL socket's would forget the encryption, or decrypt what nobody reads.
        socket.socket.shutdown(self.sock, socket.SHUT_WR)
        self.sock.settimeout(timeout_s)
        while time.monotonic() < deadline and socket.socket.recv(self.sock, 1 << 16):
            pass

    def close(self) -> None:
        """Close; a thread that waits on this channel wakes with an error."""
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            # Already gone: closing it is all that is left to do.
            pass
        self.sock.close()


class PlainChannel(Channel):
    """Bytes as they are.

    The socket is blocking, with the kernel's own timeouts, so that a chunk is one system call; ``MSG_DONTWAIT`` is
    used where both directions move at once.
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
    """Return the error for bytes that are not what the other side sent."""
    return OSError(errno.EBADMSG, "what arrived is not what was sent; something on the network changes it")


def drop_sent(parts: list[memoryview], sent: int) -> None:
    """Remove the first ``sent`` bytes from a list of byte views, in place."""
    while parts and sent >= parts[0].nbytes:
        sent -= parts.pop(0).nbytes
    if sent:
        parts[0] = parts[0][sent:]
