"""A worker's vectors by socket: one connection for each key range, both directions at once."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from deepspark_ops.errors import ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.compression import CODES, make_pushes
from deepspark_ops.exchange.transport.connection import (
    ServerConnection,
    call_once,
    expect_json,
    raise_refusal,
)
from deepspark_ops.exchange.transport.link import NO_ROUND, ExchangeReport
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan, await_round, meet_statistics
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import Vector

WINDOW_BYTES = 4 << 20
LEAST_WINDOW_CHUNKS = 3
"""Chunks asked for and not yet answered with a push: enough that both directions and both ends are busy, also when
either end waits a while for a core."""

_Result = TypeVar("_Result")


class SocketTransfer:
    """Vectors by socket, from and to every server at the same time, each with its key range."""

    def __init__(self, plan: TransferPlan, servers: Sequence[ServerConnection], sequence: int) -> None:
        """Take one connection per key range, the first server's first, and the last sequence number that was used."""
        self._plan = plan
        self._sequence = sequence
        self._shares = tuple(_Share(plan, server, i, len(servers)) for i, server in enumerate(servers))
        self._threads = ThreadPoolExecutor(len(servers) - 1, "key range") if len(servers) > 1 else None

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._plan.moving_rate = moving_rate

    def pull(self) -> Vector:
        """Copy the center and go on from it."""
        self._each(lambda share: share.note_pull())
        return self.look(as_start=True)

    def look(self, *, as_start: bool) -> Vector:
        """Copy the center; after a broken connection from the beginning."""
        vector = self._plan.vectors.take()
        self._each(lambda share: share.pull(self._sequence, vector))
        if as_start:
            self._plan.began_with(vector)
        return vector

    def exchange(self, local: Vector, measure: bool, note: RoundNote | None) -> tuple[Vector, ExchangeReport]:
        """Meet the center; after a broken connection from the first chunk that its server has not applied."""
        started = time.perf_counter()
        plan = self._plan
        plan.check(local)
        if plan.lacks_start:
            self.pull()
        sequence = self._sequence + 1
        new_local = plan.vectors.take()
        measure = measure and plan.strategy.pulls == "before"
        meetings = tuple(_Meeting(plan, share, sequence, local, new_local, measure) for share in self._shares)
        overlaps = self._each(lambda share: share.meet(meetings[share.index]))
        round_end = NO_ROUND
        if plan.strategy.pulls == "after_round":
            round_end = await_round(self._shares[0].server, plan, sequence, note)
            overlaps = self._each(lambda share: share.pull_and_end(meetings[share.index]))
        if plan.chunks.held is not None:
            meet_statistics(self._shares[0].server, plan, local, new_local, sequence)
        self._sequence = sequence
        for share in self._shares:
            share.pushes.exchanged()
        plan.began_with(new_local)
        squares = sum(sum(meeting.squares.values()) for meeting in meetings)
        staleness = max(meeting.context.staleness for meeting in meetings)
        distance = squares**0.5 if measure else None
        seconds = time.perf_counter() - started
        return new_local, ExchangeReport(
            sequence, seconds, plan.bytes_up, plan.bytes_down, staleness, max(overlaps), distance, "socket", round_end
        )

    def close(self) -> None:
        """Close the connections to all servers but the first, which is the link's."""
        for share in self._shares[1:]:
            share.server.close()
        if self._threads is not None:
            self._threads.shutdown()

    def _each(self, action: Callable[[_Share], _Result]) -> list[_Result]:
        """Do the same with every server at once; returns when all are done, and raises what the first one raised."""
        if self._threads is None:
            return [action(self._shares[0])]
        others = [self._threads.submit(action, share) for share in self._shares[1:]]
        try:
            first = action(self._shares[0])
        finally:
            wait(others)
        return [first, *(other.result() for other in others)]


class _Share:
    """One server's part: while one chunk is computed, others are on their way in both directions."""

    def __init__(self, plan: TransferPlan, server: ServerConnection, index: int, n_servers: int) -> None:
        self.index = index
        self.server = server
        self.order = tuple(plan.chunks.order(plan.worker, plan.n_workers, index, n_servers))
        self.window = min(len(self.order), max(LEAST_WINDOW_CHUNKS, WINDOW_BYTES // (4 * plan.chunk)))
        # The answer to a PULL proves that the push sent before it has left its buffer: one per open PULL is enough.
        self.pushes = make_pushes(self.window, plan.chunk, plan.n_params, plan.wire_dtype, plan.strategy)
        self._plan = plan
        self._center = aligned_vector(plan.chunk)

    def note_pull(self) -> None:
        """Have staleness counted from now on."""
        self.server.repeat(lambda connection, _: call_once(connection, {"call": "pulled"}, self._plan.worker, 0))

    def pull(self, sequence: int, vector: Vector) -> None:
        """Copy this part of the center."""

        def attempt(connection: Connection, _: bool) -> None:
            self._pull_all(_Stream(connection, self._plan, self, sequence), vector)

        self.server.repeat(attempt)

    def meet(self, meeting: _Meeting) -> int:
        """Push this part and pull unless the strategy waits for a round; returns the overlaps, 0 before the pull."""
        plan = self._plan

        def push_all(connection: Connection, is_repeated: bool) -> int:
            stream = _Stream(connection, plan, self, meeting.sequence)
            first = stream.begin(meeting, is_repeated)
            if plan.strategy.pulls == "before":
                self._pull_and_push(stream, meeting, first)
            elif plan.strategy.pulls == "after":
                self._push_and_pull(stream, meeting, first)
            else:
                self._push_only(stream, meeting, first)
            if plan.strategy.pulls != "after_round":
                return stream.end()
            # The first server closes the round, and must not before this one has applied what it was sent.
            call_once(connection, {"call": "pushed"}, plan.worker, meeting.sequence)
            return 0

        return self.server.repeat(push_all)

    def pull_and_end(self, meeting: _Meeting) -> int:
        """Take what a round has made of the center; returns the overlaps."""

        def pull_mean(connection: Connection, _: bool) -> int:
            stream = _Stream(connection, self._plan, self, meeting.sequence)
            # The connection may be a new one, which knows nothing of the exchange yet.
            stream.begin(meeting, True)
            self._pull_all(stream, meeting.new_local)
            return stream.end()

        return self.server.repeat(pull_mean)

    def _pull_all(self, stream: _Stream, vector: Vector) -> None:
        for place in range(self.window):
            stream.ask(place)
        for place, position in enumerate(self.order):
            stream.receive(place, vector[self._plan.chunks.spans[position]])
            stream.ask(place + self.window)

    def _pull_and_push(self, stream: _Stream, meeting: _Meeting, first: int) -> None:
        """Compute each chunk from the center's as it arrives."""
        for place in range(first, len(self.order)):
            start, stop = stream.span(place)
            center = self._center[: stop - start]
            stream.receive(place, center)
            stream.push(place, meeting.compute(place, center, place % self.window))
            stream.ask(place + self.window)
            stream.send_some()

    def _push_and_pull(self, stream: _Stream, meeting: _Meeting, first: int) -> None:
        """Push each chunk and take the center's after it; what the server has applied already is only taken."""
        n_chunks, window = len(self.order), self.window
        begin = meeting.n_pulled
        for place in range(begin, n_chunks + window - 1):
            if place < n_chunks:
                if place >= first:
                    start, stop = stream.span(place)
                    stream.push(place, meeting.compute(place, self._center[: stop - start], place % window))
                stream.ask(place)
                stream.send_some()
            ready = place - window + 1
            if ready >= begin:
                stream.receive(ready, meeting.new_local[self._plan.chunks.spans[self.order[ready]]])
                meeting.n_pulled = ready + 1

    def _push_only(self, stream: _Stream, meeting: _Meeting, first: int) -> None:
        """Push each chunk; nothing comes back meanwhile."""
        for place in range(first, len(self.order)):
            start, stop = stream.span(place)
            stream.push(place, meeting.compute(place, self._center[: stop - start], 0))
            stream.send_rest()


class _Meeting:
    """The arithmetic of one exchange with one server; a chunk may be computed again after a broken connection."""

    def __init__(
        self, plan: TransferPlan, share: _Share, sequence: int, local: Vector, new_local: Vector, measure: bool
    ) -> None:
        self.context = ExchangeContext(plan.n_workers, plan.moving_rate)
        self.sequence = sequence
        self.has_begun = False
        self.measure = measure
        self.squares: dict[int, float] = {}
        self.new_local = new_local
        self.n_pulled = 0
        self._plan = plan
        self._share = share
        self._local = local
        self._start = local if plan.start is None else plan.start

    def compute(self, place: int, center: Vector, slot: int) -> memoryview:
        """Write the worker's new chunk and return the bytes to push, which lie in place ``slot`` until sent."""
        plan = self._plan
        position, pushes = self._share.order[place], self._share.pushes
        span = slice(*plan.chunks.ranges[position])
        local, new_local = self._local[span], self.new_local[span]
        push = pushes.room(slot, len(local))
        if self.measure:
            np.subtract(local, center, out=push)
            self.squares[place] = float(np.dot(push, push))
        plan.strategy.worker_chunk(local, center, new_local, push, self._start[span], self.context)
        plan.chunks.hold_statistics(position, push)
        return pushes.pack(slot, span, push, new_local)


class _Stream:
    """Frames of one exchange, both directions at once, in one thread: whoever would wait for the other moves first.

    The server's thread sends and receives in turn, so a client that only sent would stop it, and itself, for good.
    """

    def __init__(self, connection: Connection, plan: TransferPlan, share: _Share, sequence: int) -> None:
        self._connection = connection
        self._plan = plan
        self._order, self._window = share.order, share.window
        self._sequence = sequence
        self._out: list[memoryview] = []
        self._header = bytearray(wire.HEADER.size)
        self._poll = select.poll()
        self._descriptor = connection.sock.fileno()
        self._poll.register(self._descriptor, select.POLLIN)

    def span(self, place: int) -> tuple[int, int]:
        """Return (start, stop) of the chunk at a place of the worker's order."""
        return self._plan.chunks.ranges[self._order[place]]

    def begin(self, meeting: _Meeting, is_repeated: bool) -> int:
        """Open the exchange, or take it up again; returns the first place to compute."""
        self._queue(Frame(wire.BEGIN, wire.BYTES, self._plan.worker, 0, self._sequence))
        pulls_first = self._plan.strategy.pulls == "before"
        asked = self._window if pulls_first and not is_repeated else 0
        for place in range(asked):
            self.ask(place)
        self.send_rest()
        answer = expect_json(self._connection, wire.ANSWER)
        first = int(answer["place"])
        if not meeting.has_begun:
            meeting.has_begun = True
            meeting.context = ExchangeContext(
                self._plan.n_workers,
                self._plan.moving_rate,
                int(answer["staleness"]),
                self._sequence - 1,
                int(answer["total"]),
            )
        if pulls_first:
            for place in range(first + asked, first + self._window):
                self.ask(place)
        return first

    def end(self) -> int:
        """Close the exchange; returns how many exchanges of others were open meanwhile."""
        self._queue(Frame(wire.END, wire.BYTES, self._plan.worker, 0, self._sequence))
        self.send_rest()
        return int(expect_json(self._connection, wire.ANSWER)["overlaps"])

    def ask(self, place: int) -> None:
        """Queue a PULL; places past the end are nobody's."""
        if place < len(self._order):
            start, stop = self.span(place)
            self._queue(Frame(wire.PULL, wire.FLOAT32, self._plan.worker, place, self._sequence, start, stop - start))

    def push(self, place: int, payload: memoryview) -> None:
        """Queue a PUSH; ``payload`` must stay as it is until it is sent."""
        start, stop = self.span(place)
        dtype = CODES[self._plan.wire_dtype]
        self._queue(Frame(wire.PUSH, dtype, self._plan.worker, place, self._sequence, start, stop - start))
        self._out.append(payload)

    def send_rest(self) -> None:
        """Send everything that is queued; only where the server sends nothing big meanwhile."""
        self._connection.send_all(self._out)

    def send_some(self) -> bool:
        """Send what the socket takes now; returns whether it took anything."""
        if not self._out:
            return False
        try:
            sent = self._connection.sock.sendmsg(self._out, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._connection.gone(error) from error
        wire.drop_sent(self._out, sent)
        return True

    def receive(self, place: int, chunk: Vector) -> None:
        """Fill ``chunk`` with the answer to the PULL of ``place``, sending what is queued meanwhile."""
        header, body = memoryview(self._header), wire.number_bytes(chunk)
        buffers = [header, body]
        got, size = 0, header.nbytes + body.nbytes
        checked = False
        while got < size:
            received = self._receive_some(buffers)
            if received:
                got += received
                wire.drop_sent(buffers, received)
            elif not self.send_some():
                self._wait()
            if not checked and got >= header.nbytes:
                self._check(place, body[: got - header.nbytes])
                checked = True

    def _receive_some(self, buffers: list[memoryview]) -> int:
        try:
            received = self._connection.sock.recvmsg_into(buffers, 0, socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._connection.gone(error) from error
        if received == 0:
            msg = f"{self._connection.peer} closed the connection in the middle of an exchange"
            raise ExchangeUnavailable(msg)
        return received

    def _wait(self) -> None:
        wanted = select.POLLIN | select.POLLOUT if self._out else select.POLLIN
        self._poll.modify(self._descriptor, wanted)
        if not self._poll.poll(1000 * self._connection.timeout_s):
            what = "a chunk of the center"
            raise self._connection.silent(what)

    def _check(self, place: int, begun: memoryview) -> None:
        """See that what arrives is the chunk asked for; ``begun`` is what has come of its payload."""
        frame = self._connection.check_header(self._header)
        if frame.operation == wire.ERROR:
            text = bytearray(frame.count)
            text[: begun.nbytes] = begun
            self._connection.receive_into(memoryview(text)[begun.nbytes :], "a refusal")
            raise_refusal(json.loads(text))
        start, stop = self.span(place)
        if (frame.operation, frame.offset, frame.count) != (wire.CHUNK, start, stop - start):
            msg = f"{self._connection.peer} sent {frame}; expected the chunk [{start}, {stop})"
            raise ProtocolError(msg)

    def _queue(self, frame: Frame) -> None:
        self._out.append(memoryview(frame.pack(self._connection.run_id)))
