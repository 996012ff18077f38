"""Frames between workers, driver and server: a checked binary header, then raw numbers or UTF-8 JSON. Never pickle.

    header   48 bytes, little-endian: magic, version, operation, dtype, run id, worker id, turn, sequence,
             offset, count; the payload has exactly ``count`` elements of ``dtype``
    numbers  chunks of vectors, as they are in memory
    JSON     control calls, their answers, errors

Before the first frame both sides prove knowledge of the run's secret, see ``channel.handshake``; the channel transports
the bytes. A closed connection stays closed, a short read is an error, an announced length is checked before any byte of
the payload is read, and every wait has a limit and names the awaited thing in its error.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepspark_ops.errors import ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport.channel.base import Channel, drop_sent
from deepspark_ops.exchange.transport.channel.handshake import MAGIC, VERSION

HEADER = struct.Struct("<4sBBBxQiIQQQ")
MAX_JSON_BYTES = 1 << 20
STATE_PIECE_BYTES = 1 << 20
REFUSAL_S = 0.5

# Operations.
CALL, ANSWER, ERROR, PULL, CHUNK, PUSH, BEGIN, END, STATISTICS, STATE = range(1, 11)
OPERATIONS = range(CALL, STATE + 1)
# Element types, with the size of an element.
BYTES, FLOAT32, FLOAT16, BFLOAT16 = range(4)
ITEM_BYTES = {BYTES: 1, FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2}

ROOM = "room to send"

_MOST_IDLE_S = 30
"""Longest time until the first check of the other host; routers forget connections without traffic after minutes."""
_MOST_SECONDS, _MOST_PROBES = 32_767, 127
"""Linux's limits."""

Payload = bytes | memoryview


@dataclass(frozen=True)
class Frame:
    """A frame's header.

    Attributes:
        operation: One of this module's operations.
        dtype: Element type of the payload.
        worker: Worker id; ``events.DRIVER`` for the driver.
        turn: Position of a chunk in the worker's order; else 0.
        sequence: Number of the exchange or of the call.
        offset: First element of a chunk in the vector.
        count: Elements of the payload; for ``PULL`` elements wanted, with no payload.
    """

    operation: int
    dtype: int = BYTES
    worker: int = 0
    turn: int = 0
    sequence: int = 0
    offset: int = 0
    count: int = 0

    @property
    def payload_bytes(self) -> int:
        """Bytes that follow the header."""
        return 0 if self.operation == PULL else self.count * ITEM_BYTES[self.dtype]

    def pack(self, run_id: int) -> bytes:
        """Return the header's bytes."""
        return HEADER.pack(
            MAGIC,
            VERSION,
            self.operation,
            self.dtype,
            run_id,
            self.worker,
            self.turn,
            self.sequence,
            self.offset,
            self.count,
        )


def unpack_frame(header: bytes | bytearray | memoryview, *, run_id: int, limit_bytes: int, peer: str) -> Frame:
    """Return a checked header.

    Raises:
        ProtocolError: Not our magic, version or run, unknown operation or dtype, or more than ``limit_bytes``.
    """
    magic, version, operation, dtype, their_run, worker, turn, sequence, offset, count = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION:
        msg = f"{peer}: not a frame of protocol version {VERSION}: begins with {bytes(header[:5])!r}"
        raise ProtocolError(msg)
    if their_run != run_id:
        msg = f"{peer}: frame of run {their_run:016x} on a connection of run {run_id:016x}"
        raise ProtocolError(msg)
    if operation not in OPERATIONS or dtype not in ITEM_BYTES:
        msg = f"{peer}: operation={operation}, dtype={dtype}: unknown in protocol version {VERSION}"
        raise ProtocolError(msg)
    frame = Frame(operation, dtype, worker, turn, sequence, offset, count)
    if frame.payload_bytes > limit_bytes:
        msg = f"{peer}: frame of {frame.payload_bytes:,} bytes announced, at most {limit_bytes:,} are allowed here"
        raise ProtocolError(msg)
    return frame


class Connection:
    """An authenticated connection. Not thread-safe."""

    def __init__(
        self, channel: Channel, *, run_id: int, limit_bytes: int, timeout_s: float, vanished_s: float, peer: str
    ) -> None:
        """Take over a channel.

        Args:
            channel: Result of the handshake; ``close`` closes it.
            run_id: In every frame.
            limit_bytes: Longest payload of numbers that is accepted.
            timeout_s: Longest silence in the middle of a frame, and longest wait for room to send.
            vanished_s: After about this long without a sign of the other host's kernel the connection breaks, also
                between frames.
            peer: Name of the other side in errors.
        """
        self.channel = channel
        self.run_id = run_id
        self.peer = peer
        self.limit_bytes = limit_bytes
        self._header = bytearray(HEADER.size)
        channel.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_vanished_host(channel.sock, vanished_s)
        self.use_timeout(timeout_s)

    def use_timeout(self, timeout_s: float) -> None:
        """Limit every later wait."""
        self.timeout_s = timeout_s
        self.channel.use_timeout(timeout_s)

    def send(self, frame: Frame, payload: Payload = b"") -> None:
        """Send one frame.

        Raises:
            ExchangeUnavailable: The other side takes nothing for ``timeout_s``, or is gone.
        """
        parts = [memoryview(frame.pack(self.run_id)), memoryview(payload).cast("B")]
        self.send_all([part for part in parts if part.nbytes])

    def send_all(self, parts: list[memoryview]) -> None:
        """Send byte views in order; empties the list."""
        while parts:
            try:
                sent = self.channel.send(parts)
            except BlockingIOError as error:
                raise self.silent(ROOM) from error
            except OSError as error:
                raise self.gone(error) from error
            drop_sent(parts, sent)

    def send_json(self, operation: int, value: Any, *, worker: int = 0, sequence: int = 0) -> None:
        """Send a frame of JSON."""
        text = json.dumps(value).encode()
        if len(text) > MAX_JSON_BYTES:
            msg = f"{self.peer}: message of {len(text):,} bytes; at most {MAX_JSON_BYTES:,}"
            raise ProtocolError(msg)
        self.send(Frame(operation, BYTES, worker=worker, sequence=sequence, count=len(text)), text)

    def wait_frame(self) -> Frame | None:
        """Wait without limit for the next header; None if the other side closed between frames.

        Raises:
            ExchangeUnavailable: The connection broke.
            ProtocolError: Not a frame.
        """
        while True:
            try:
                return self.receive_frame()
            except _NothingYet:
                continue

    def receive_frame(self) -> Frame | None:
        """Wait ``timeout_s`` for the next header; None if the other side closed between frames.

        Raises:
            ExchangeUnavailable: Nothing came (subclass), or the connection broke.
            ProtocolError: Not a frame.
        """
        view = memoryview(self._header)
        try:
            got = self.channel.receive(view)
        except BlockingIOError as error:
            msg = f"no answer from {self.peer} within {self.timeout_s:g} s: waited for a frame"
            raise _NothingYet(msg) from error
        except OSError as error:
            raise self.gone(error) from error
        if got == 0:
            return None
        if got < HEADER.size:
            self.receive_into(view[got:], "the rest of a header")
        return self.check_header(self._header)

    def check_header(self, header: bytearray | memoryview) -> Frame:
        """Check 48 received bytes; see ``unpack_frame``."""
        limit = max(self.limit_bytes, MAX_JSON_BYTES)
        return unpack_frame(header, run_id=self.run_id, limit_bytes=limit, peer=self.peer)

    def receive_into(self, view: memoryview, subject: str = "the rest of a frame") -> None:
        """Fill ``view`` (bytes) from the connection.

        Raises:
            ExchangeUnavailable: Closed or silent before it is full; the message names ``subject``.
        """
        while view.nbytes:
            try:
                got = self.channel.receive(view)
            except BlockingIOError as error:
                raise self.silent(subject) from error
            except OSError as error:
                raise self.gone(error) from error
            if got == 0:
                msg = f"{self.peer} closed the connection; {view.nbytes:,} bytes of {subject} are missing"
                raise ExchangeUnavailable(msg)
            view = view[got:]

    def receive_json(self, frame: Frame) -> Any:
        """Read a frame's payload as JSON.

        Raises:
            ProtocolError: Too long or not JSON.
        """
        if frame.dtype != BYTES or frame.count > MAX_JSON_BYTES:
            msg = f"{self.peer}: {frame.count:,} elements of dtype {frame.dtype}; at most {MAX_JSON_BYTES:,} bytes JSON"
            raise ProtocolError(msg)
        text = bytearray(frame.count)
        self.receive_into(memoryview(text))
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"{self.peer}: not JSON: {bytes(text[:60])!r}"
            raise ProtocolError(msg) from error

    def refuse(self, error: Exception) -> None:
        """Send the reason for the end of this connection, as an ``ERROR`` frame.

        Bytes that the other side has sent meanwhile are read for a moment: a close with unread data would reset the
        connection and lose the reason. A side that neither reads nor closes does not get the reason.
        """
        with suppress(ExchangeUnavailable, OSError):
            self.send_json(ERROR, {"kind": type(error).__name__, "message": str(error)})
            self.channel.finish(REFUSAL_S)

    def close(self) -> None:
        """Close; a waiting thread of this connection wakes with an error."""
        self.channel.close()

    def silent(self, subject: str) -> ExchangeUnavailable:
        """Return the error for a timeout."""
        return ExchangeUnavailable(f"{self.peer} was silent for {self.timeout_s:g} s: waited for {subject}")

    def gone(self, error: OSError) -> ExchangeUnavailable:
        """Return the error for a broken connection."""
        return ExchangeUnavailable(f"connection to {self.peer} broke: {error.strerror or error}")


class _NothingYet(ExchangeUnavailable):
    """No frame started within the timeout."""


def number_bytes(vector: np.ndarray[Any, np.dtype[np.float32] | np.dtype[np.uint16]]) -> memoryview:
    """Return the bytes of a contiguous array as a view, little-endian."""
    return memoryview(vector.view(np.uint8).data)


def _notice_vanished_host(sock: socket.socket, after_s: float) -> None:
    """Make the kernel end the connection after about ``after_s`` without an answer of the other host.

    The other host's kernel answers while its process computes or stands still. A shorter silence is tolerated.
    """
    idle_s = max(1, min(_MOST_IDLE_S, int(after_s / 3)))
    interval_s = max(1, int(after_s / 6))
    n_probes = max(1, min(_MOST_PROBES, round((after_s - idle_s) / interval_s)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", idle_s),
        ("TCP_KEEPINTVL", min(interval_s, _MOST_SECONDS)),
        ("TCP_KEEPCNT", n_probes),
        ("TCP_USER_TIMEOUT", min(2**31 - 1, math.ceil(1000 * after_s))),  # of sent and unconfirmed bytes
    ):
        if hasattr(socket, option):  # some platforms lack an option
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
