"""Bytes in clear, with a check that detects changes, repetitions, omissions and another order.

    record   length of the payload, 4 bytes little-endian; payload; the first 16 bytes of HMAC-SHA256 over the record's
             number in its direction (8 bytes little-endian), the length and the payload

Each direction has its own key, derived from the run's secret and both nonces of the handshake. So a record of another
connection, of the other direction or of another moment fails. Only verified bytes are returned.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct

from deepspark_ops.exchange.transport.channel.base import PlainChannel, altered, drop_sent

RECORD_BYTES = 128 << 10
"""Longest payload: long enough for few system calls, short enough to be verified while more bytes arrive."""
TAG_BYTES = 16

_LENGTH = struct.Struct("<I")
_NUMBERED = struct.Struct("<QI")


class MacChannel(PlainChannel):
    """A channel of records with a tag."""

    def __init__(self, sock: socket.socket, *, send_key: bytes, receive_key: bytes) -> None:
        """Take over a connected socket.

        Args:
            sock: Nothing has been sent over it after the handshake.
            send_key: 32 bytes, for what this side sends.
            receive_key: 32 bytes, for what it receives.
        """
        super().__init__(sock)
        self._send_tags, self._receive_tags = _Tags(send_key), _Tags(receive_key)
        self._unsent: list[memoryview] = []  # of the record that is being sent
        self._n_sending = 0  # bytes of its payload
        self._room = memoryview(bytearray(_LENGTH.size + RECORD_BYTES + TAG_BYTES))
        self._got, self._expected = 0, _LENGTH.size  # of the record that arrives
        self._verified = memoryview(b"")

    def send(self, parts: list[memoryview]) -> int:
        """See ``Channel``; one record."""
        return self._send(parts, 0)

    def send_now(self, parts: list[memoryview]) -> int:
        """See ``Channel``; counts nothing before a whole record is sent."""
        return self._send(parts, socket.MSG_DONTWAIT)

    def receive(self, view: memoryview) -> int:
        """See ``Channel``."""
        return self._receive(view, socket.MSG_WAITALL)

    def receive_now(self, views: list[memoryview]) -> int:
        """See ``Channel``; fills the first view only."""
        return self._receive(views[0], socket.MSG_DONTWAIT)

    def _send(self, parts: list[memoryview], flags: int) -> int:
        if not self._unsent:
            payload = _first_bytes(parts, RECORD_BYTES)
            self._n_sending = sum(view.nbytes for view in payload)
            tag = self._send_tags.next(payload, self._n_sending)
            self._unsent = [memoryview(_LENGTH.pack(self._n_sending)), *payload, memoryview(tag)]
        while self._unsent:
            drop_sent(self._unsent, self.sock.sendmsg(self._unsent, (), flags))
        return self._n_sending

    def _receive(self, view: memoryview, flags: int) -> int:
        while not self._verified:
            missing = self._room[self._got : self._expected]
            got = self.sock.recv_into(missing, missing.nbytes, flags)
            if got == 0:
                return 0
            self._got += got
            if self._got == self._expected:
                self._take_record()
        count = min(view.nbytes, self._verified.nbytes)
        view[:count] = self._verified[:count]
        self._verified = self._verified[count:]
        return count

    def _take_record(self) -> None:
        """Continue from a record's length to the remaining bytes, and from a whole record to its verified payload."""
        (length,) = _LENGTH.unpack(self._room[: _LENGTH.size])
        if not 0 < length <= RECORD_BYTES:
            raise altered()
        if self._expected == _LENGTH.size:
            self._expected += length + TAG_BYTES
            return
        end = _LENGTH.size + length
        payload, tag = self._room[_LENGTH.size : end], self._room[end : end + TAG_BYTES]
        if not hmac.compare_digest(self._receive_tags.next([payload], length), tag):
            raise altered()
        self._verified = payload
        self._got, self._expected = 0, _LENGTH.size


class _Tags:
    """The tags of one direction's records, in order."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod=hashlib.sha256)
        self._number = 0

    def next(self, payload: list[memoryview], length: int) -> bytes:
        tag = self._keyed.copy()
        tag.update(_NUMBERED.pack(self._number, length))
        for view in payload:
            tag.update(view)
        self._number += 1
        return tag.digest()[:TAG_BYTES]


def _first_bytes(parts: list[memoryview], limit: int) -> list[memoryview]:
    """Return views of the first ``limit`` bytes of ``parts``."""
    joined = []
    for part in parts:
        joined.append(part[:limit])
        limit -= joined[-1].nbytes
        if not limit:
            break
    return joined
