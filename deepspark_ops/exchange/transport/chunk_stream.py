"""Frames of an exchange over a connection, in both directions at the same time."""

from __future__ import annotations

import json
import select
from collections.abc import Sequence
from typing import NamedTuple

from deepspark_ops.errors import ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.base import drop_sent
from deepspark_ops.exchange.transport.compression import CODES
from deepspark_ops.exchange.transport.connection import expect_json, raise_refusal
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import Vector


class Begun(NamedTuple):
    """A server's answer to the begin of an exchange.

    Attributes:
        place: First chunk of the worker's order that the server has not applied yet.
        staleness: Exchanges of others since this worker's last pull.
        total: Exchanges that all workers ended before.
        others_open: Open exchanges of others, which may have read the same center.
        n_workers: Present workers; in a tree of centers, children of the root.
    """

    place: int
    staleness: int
    total: int
    others_open: int
    n_workers: int


class ChunkStream:
    """Frames of one exchange, both directions at once, in one thread: without waiting, no send/send deadlock.

    The server's thread sends and receives in turn. A client without reads would block the server, and then the client.
    """

    def __init__(
        self, connection: Connection, plan: TransferPlan, order: Sequence[int], window: int, sequence: int
    ) -> None:
        """Send and receive for exchange ``sequence``.

        Args:
            connection: Connection to the server of a key range.
            plan: Strategy, chunks and buffers of the exchange.
            order: Positions of the key range's chunks, in the order in which the worker takes them.
            window: Chunks asked for ahead.
            sequence: Number of the exchange.
        """
        self._connection = connection
        self._plan = plan
        self._order, self._window = order, window
        self._sequence = sequence
        self._out: list[memoryview] = []
        self._header = bytearray(wire.HEADER.size)
        self._poll = select.poll()
        self._descriptor = connection.channel.sock.fileno()
        self._poll.register(self._descriptor, select.POLLIN)

    def span(self, turn: int) -> tuple[int, int]:
        """Return (start, stop) of the chunk at a position of the worker's order."""
        return self._plan.chunks.ranges[self._order[turn]]

    def begin(self, *, asks_ahead: bool) -> Begun:
        """Open the exchange, or continue an open exchange.

        Args:
            asks_ahead: Send the first PULLs at once, for pulls that begin with the first chunk.
        """
        self._queue(Frame(wire.BEGIN, wire.BYTES, self._plan.worker, 0, self._sequence))
        if asks_ahead:
            self.ask_first(0)
        self.send_rest()
        answer = expect_json(self._connection, wire.ANSWER)
        return Begun(*(int(answer[name]) for name in Begun._fields))

    def send_end(self) -> None:
        """Close the exchange; ``receive_end`` reads the answer."""
        self._queue(Frame(wire.END, wire.BYTES, self._plan.worker, 0, self._sequence))
        self.send_rest()

    def receive_end(self) -> int:
        """Return the number of overlapping exchanges, from the answer to the end."""
        return int(expect_json(self._connection, wire.ANSWER)["overlaps"])

    def ask_first(self, start: int) -> None:
        """Queue PULLs of a whole window from ``start``."""
        for turn in range(start, start + self._window):
            self.ask(turn)

    def ask(self, turn: int) -> None:
        """Queue a PULL, unless ``turn`` is past the last chunk."""
        if turn < len(self._order):
            start, stop = self.span(turn)
            self._queue(Frame(wire.PULL, wire.FLOAT32, self._plan.worker, turn, self._sequence, start, stop - start))

    def push(self, turn: int, payload: memoryview) -> None:
        """Queue a PUSH; ``payload`` must not change until it is sent."""
        start, stop = self.span(turn)
        dtype = CODES[self._plan.wire_dtype]
        self._queue(Frame(wire.PUSH, dtype, self._plan.worker, turn, self._sequence, start, stop - start))
        self._out.append(payload)

    def send_rest(self) -> None:
        """Send all queued frames; only where the server sends no chunks meanwhile."""
        self._connection.send_all(self._out)

    def send_some(self) -> bool:
        """Send as many bytes as the socket takes now; return whether the socket took any."""
        if not self._out:
            return False
        try:
            sent = self._connection.channel.send_now(self._out)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._connection.gone(error) from error
        drop_sent(self._out, sent)
        return True

    def receive(self, turn: int, chunk: Vector) -> None:
        """Fill ``chunk`` with the answer to the PULL of ``turn``, and send queued frames meanwhile."""
        header, body = memoryview(self._header), wire.number_bytes(chunk)
        buffers = [header, body]
        got, size = 0, header.nbytes + body.nbytes
        checked = False
        while got < size:
            received = self._receive_some(buffers)
            if received:
                got += received
                drop_sent(buffers, received)
            elif not self.send_some():
                self._wait()
            if not checked and got >= header.nbytes:
                self._check(turn, body[: got - header.nbytes])
                checked = True

    def _receive_some(self, buffers: list[memoryview]) -> int:
        try:
            received = self._connection.channel.receive_now(buffers)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._connection.gone(error) from error
        if received == 0:
            msg = f"{self._connection.peer} closed the connection in the middle of an exchange"
            raise ExchangeUnavailable(msg)
        return received

    def _wait(self) -> None:
        events = select.POLLIN | select.POLLOUT if self._out else select.POLLIN
        self._poll.modify(self._descriptor, events)
        if not self._poll.poll(1000 * self._connection.timeout_s):
            subject = "a chunk of the center"
            raise self._connection.silent(subject)

    def _check(self, turn: int, begun: memoryview) -> None:
        """Check that the arriving frame is the awaited chunk; ``begun`` is the arrived part of the payload."""
        frame = self._connection.check_header(self._header)
        if frame.operation == wire.ERROR:
            text = bytearray(frame.count)
            text[: begun.nbytes] = begun
            self._connection.receive_into(memoryview(text)[begun.nbytes :], "a refusal")
            raise_refusal(json.loads(text))
        start, stop = self.span(turn)
        if (frame.operation, frame.offset, frame.count) != (wire.CHUNK, start, stop - start):
            msg = f"{self._connection.peer} sent {frame}; expected the chunk [{start}, {stop})"
            raise ProtocolError(msg)

    def _queue(self, frame: Frame) -> None:
        self._out.append(memoryview(frame.pack(self._connection.run_id)))
