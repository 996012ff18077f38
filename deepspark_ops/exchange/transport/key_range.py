"""A server's part of a worker's exchanges by socket: chunks and arithmetic of the server's key range."""

from __future__ import annotations

import numpy as np

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.strategies.base import ExchangeContext, rate_beside_others
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.chunk_stream import Begun, ChunkStream
from deepspark_ops.exchange.transport.compression import make_pushes
from deepspark_ops.exchange.transport.connection import ServerConnection, call_once, expect_json
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.exchange.transport.wire import Connection
from deepspark_ops.param_vector import Vector

WINDOW_BYTES = 4 << 20
_NO_VECTOR: Vector = np.empty(0, np.float32)
LEAST_WINDOW_CHUNKS = 3
"""Least number of pulled chunks without a push: both directions and both ends stay busy, also when either end waits a
while for a core."""


class KeyRange:
    """The chunks of a server: a chunk is computed while others travel in both directions.

    After a broken connection a step starts again, with the first chunk that the server has not applied.
    """

    def __init__(self, plan: TransferPlan, server: ServerConnection, index: int, n_servers: int) -> None:
        """Take the connection to server ``index`` of ``n_servers``."""
        self.index = index
        self.server = server
        self.order = tuple(plan.chunks.order(plan.worker, plan.n_workers, index, n_servers))
        self.window = min(len(self.order), max(LEAST_WINDOW_CHUNKS, WINDOW_BYTES // (4 * plan.chunk)))
        # A PULL's answer proves that the earlier push is sent: a buffer for each open PULL is enough.
        self.pushes = make_pushes(self.window, plan.chunk, plan.n_params, plan.wire_dtype, plan.strategy)
        self._plan = plan
        self._center = aligned_vector(plan.chunk)
        self._overlaps = 0

    def note_pull(self) -> None:
        """Count staleness from now on."""
        self.server.repeat(lambda connection, _: call_once(connection, {"call": "pulled"}, self._plan.worker, 0))

    def copy_center(self, sequence: int, vector: Vector) -> None:
        """Copy this part of the center into ``vector``, (n_params,)."""

        def attempt(connection: Connection, _: bool) -> None:
            stream = self._stream(connection, sequence)
            stream.ask_first(0)
            self._pull_all(stream, vector)

        self.server.repeat(attempt)

    def exchange_chunks(self, part: RangeExchange) -> None:
        """Push this key range, and pull unless the strategy waits for a round; see ``Transfer``."""
        self.server.repeat(lambda connection, is_repeated: self._exchange_rest(connection, part, not is_repeated))
        if self._plan.strategy.pulls == "after_round":
            self._report_pushed(part)

    def _exchange_rest(self, connection: Connection, part: RangeExchange, asks_ahead: bool) -> None:
        """Open the exchange on this connection, and exchange every chunk that the server has not applied."""
        pulls = self._plan.strategy.pulls
        stream = self._stream(connection, part.sequence)
        first = part.begin(stream, connection, asks_ahead=asks_ahead and pulls == "before")
        if pulls == "before":
            if not asks_ahead:
                stream.ask_first(first)
            self._pull_and_push(stream, part, first)
        elif pulls == "after":
            self._push_and_pull(stream, part, first)
        else:
            self._push_only(stream, part, first)
        stream.send_rest()

    def _report_pushed(self, part: RangeExchange) -> None:
        """Have the server say that it has applied every push: the first server closes the round after all servers."""

        def send(connection: Connection) -> None:
            if connection is not part.connection:
                self._exchange_rest(connection, part, asks_ahead=False)
            connection.send_json(wire.CALL, {"call": "pushed"}, worker=self._plan.worker, sequence=part.sequence)

        self.server.send(send, lambda connection: expect_json(connection, wire.ANSWER))

    def pull_result(self, part: RangeExchange) -> None:
        """Copy the result of the round."""

        def attempt(connection: Connection, _: bool) -> None:
            stream = self._stream(connection, part.sequence)
            # Begin again: with lock=full the server released the lock while the round was open.
            part.begin(stream, connection, asks_ahead=True)
            self._pull_all(stream, part.new_local)

        self.server.repeat(attempt)

    def end(self, part: RangeExchange) -> int:
        """Close the exchange; return the number of overlapping exchanges.

        If the server's connection confirms later, the returned number is the number of the exchange before. A strategy
        that never pulls waits for the answer, since no other answer proves that the pushes arrived.
        """
        pulls = self._plan.strategy.pulls

        def send(connection: Connection) -> None:
            if connection is not part.connection:  # pushes over the old connection may be lost
                if pulls == "never":
                    self._exchange_rest(connection, part, asks_ahead=False)
                else:
                    self._push_again(connection, part)
            self._stream(connection, part.sequence).send_end()

        def receive(connection: Connection) -> None:
            self._overlaps += self._stream(connection, part.sequence).receive_end()

        self.server.send(send, receive)
        if pulls == "never":
            self.server.settle()
        part.forget_vectors()
        self.pushes.exchanged()
        overlaps, self._overlaps = self._overlaps, 0
        return overlaps

    def _push_again(self, connection: Connection, part: RangeExchange) -> None:
        """Send the pushes that the server has not applied, as they were: the worker may use the result already."""
        stream = self._stream(connection, part.sequence)
        for turn in range(part.begin(stream, connection), len(self.order)):
            if turn not in part.payloads:
                msg = f"{connection.peer}: expects push {turn} of exchange {part.sequence}, which it has answered"
                raise ProtocolError(msg)
            stream.push(turn, part.payloads[turn])
        stream.send_rest()

    def _stream(self, connection: Connection, sequence: int) -> ChunkStream:
        return ChunkStream(connection, self._plan, self.order, self.window, sequence)

    def _pull_all(self, stream: ChunkStream, vector: Vector) -> None:
        """Receive all chunks; the first window was asked for."""
        for turn, position in enumerate(self.order):
            stream.receive(turn, vector[self._plan.chunks.spans[position]])
            stream.ask(turn + self.window)

    def _pull_and_push(self, stream: ChunkStream, part: RangeExchange, first: int) -> None:
        """Compute each push from the center's chunk as soon as the chunk arrives."""
        for turn in range(first, len(self.order)):
            start, stop = stream.span(turn)
            center = self._center[: stop - start]
            stream.receive(turn, center)
            stream.push(turn, part.compute(turn, center, turn % self.window))
            stream.ask(turn + self.window)
            stream.send_some()

    def _push_and_pull(self, stream: ChunkStream, part: RangeExchange, first: int) -> None:
        """Push and then pull each chunk; a chunk that the server has applied is only pulled."""
        n_chunks, window = len(self.order), self.window
        begin = part.n_pulled
        for turn in range(begin, n_chunks + window - 1):
            if turn < n_chunks:
                if turn >= first:
                    start, stop = stream.span(turn)
                    stream.push(turn, part.compute(turn, self._center[: stop - start], turn % window))
                stream.ask(turn)
                stream.send_some()
            ready = turn - window + 1
            if ready >= begin:
                stream.receive(ready, part.new_local[self._plan.chunks.spans[self.order[ready]]])
                part.n_pulled = ready + 1

    def _push_only(self, stream: ChunkStream, part: RangeExchange, first: int) -> None:
        """Push each chunk; the server sends nothing meanwhile."""
        for turn in range(first, len(self.order)):
            start, stop = stream.span(turn)
            stream.push(turn, part.compute(turn, self._center[: stop - start], 0))
            stream.send_rest()


class RangeExchange:
    """The arithmetic of an exchange in a key range; after a broken connection a chunk may be computed twice.

    Attributes:
        context: Numbers of the exchange, once it has begun.
        sequence: Number of the exchange.
        connection: Connection with the last begin: frames arrive in the order of sending.
        squares: Turn of a chunk -> squared distance of local and center, where the distance is measured.
        n_pulled: Chunks that are in ``new_local``, where chunks are pulled after their push.
        payloads: Turn -> bytes of a push, while the bytes' buffer is the push's: a later answer proves earlier pushes.
    """

    def __init__(
        self,
        plan: TransferPlan,
        key_range: KeyRange,
        sequence: int,
        local: Vector,
        new_local: Vector,
        *,
        measure: bool,
    ) -> None:
        """Wait for ``begin``; see ``Transfer.exchange_chunks``."""
        self.context = ExchangeContext(plan.n_workers, plan.moving_rate)
        self.sequence = sequence
        self.connection: Connection | None = None
        self.squares: dict[int, float] = {}
        self.new_local = new_local
        self.n_pulled = 0
        self.payloads: dict[int, memoryview] = {}
        self._measure = measure
        self._plan = plan
        self._key_range = key_range
        self._local = local
        self._start = plan.start_or(local)
        self._center_copy = plan.center_copy

    def begin(self, stream: ChunkStream, connection: Connection, *, asks_ahead: bool = False) -> int:
        """Open or continue the exchange on a connection; return the turn of the first chunk to push."""
        begun: Begun = stream.begin(asks_ahead=asks_ahead)
        if self.connection is None:
            plan = self._plan
            rate = rate_beside_others(plan.alpha(begun.n_workers), begun.others_open)
            self.context = ExchangeContext(begun.n_workers, rate, begun.staleness, self.sequence - 1, begun.total)
        self.connection = connection
        return begun.place

    def compute(self, turn: int, center: Vector, buffer: int) -> memoryview:
        """Write the worker's new chunk; return the bytes to push, in a buffer that is free once they are sent."""
        plan = self._plan
        position, pushes = self._key_range.order[turn], self._key_range.pushes
        span = slice(*plan.chunks.ranges[position])
        local, new_local = self._local[span], self.new_local[span]
        push = pushes.room(buffer, len(local))
        if self._measure:
            np.subtract(local, center, out=push)
            plan.chunks.clear_statistics(position, push)
            self.squares[turn] = float(np.dot(push, push))
        plan.strategy.worker_chunk(local, center, new_local, push, self._start[span], self.context)
        plan.chunks.clear_statistics(position, push)
        if self._center_copy is not None:
            np.add(center, push, out=self._center_copy[span])
        self.payloads.pop(turn - self._key_range.window, None)
        payload = pushes.pack(buffer, span, push, new_local, plan.strategy.center_share(self.context))
        self.payloads[turn] = payload
        return payload

    def forget_vectors(self) -> None:
        """Let the worker's vectors be used again; only ``payloads`` are needed to push again."""
        self.new_local = self._local = self._start = _NO_VECTOR
        self._center_copy = None
