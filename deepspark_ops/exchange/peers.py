"""One connection of the exchange server, from its first frame to its last; a thread of its own serves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from deepspark_ops.errors import ConfigError, ExchangeUnavailable, ProtocolError
from deepspark_ops.events import DRIVER
from deepspark_ops.exchange import wire
from deepspark_ops.exchange.book_calls import ASKABLE
from deepspark_ops.exchange.center import Ticket
from deepspark_ops.exchange.chunks import apply_push
from deepspark_ops.exchange.coordinator import Coordinator
from deepspark_ops.exchange.round_closing import RoundNote
from deepspark_ops.exchange.slots import BEGUN, DUPLICATES, ENDED, MARK, PLACE, UNCERTAIN
from deepspark_ops.exchange.state_file import StateFileWriter
from deepspark_ops.exchange.strategies import Terms
from deepspark_ops.exchange.wire import Connection, Frame
from deepspark_ops.param_vector import Vector

if TYPE_CHECKING:
    from deepspark_ops.exchange.server import ExchangeServer

_Kind = TypeVar("_Kind")


class VectorPeer:
    """One authenticated connection to a server that serves a key range: chunks are pulled and pushed."""

    def __init__(self, server: ExchangeServer, connection: Connection) -> None:
        """Serve nothing before ``run``."""
        self.connection = connection
        self.worker = DRIVER
        self.session = ""
        self.ended = threading.Event()
        self._server = server
        self._center = server.center
        self._order: tuple[int, ...] = ()
        self._whole = ExitStack()
        self._ticket: Ticket | None = None
        self._terms = Terms(server.settings.n_workers, server.moving_rate)
        self._moved_bytes = 0
        self._calls: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "attach": self._attach,
            "pulled": self._pulled,
            "pushed": lambda _: self._member(),  # calls are answered in turn: every push before it is applied
        }
        self._operations: dict[int, Callable[[Frame], None]] = {
            wire.CALL: self._call,
            wire.PULL: self._pull,
            wire.PUSH: self._push,
            wire.BEGIN: self._begin,
            wire.END: self._end,
        }

    def run(self) -> None:
        """Serve frames until the other side closes."""
        try:
            while (frame := self.connection.wait_frame()) is not None:
                self._operations.get(frame.operation, self._refuse)(frame)
        except (ProtocolError, ConfigError) as error:
            self.connection.refuse(error)
            raise
        finally:
            self._whole.close()
            self._server.exit(self)

    def _refuse(self, frame: Frame) -> None:
        msg = f"{self.connection.peer}: operation {frame.operation} is not for a server"
        raise ProtocolError(msg)

    def _call(self, frame: Frame) -> None:
        request = self.connection.receive_json(frame)
        call = self._calls.get(str(request.get("call"))) if isinstance(request, dict) else None
        if call is None:
            msg = f"{self.connection.peer}: unknown call {str(request)[:80]}; known: {', '.join(self._calls)}"
            raise ProtocolError(msg)
        answer = call(request)
        self.connection.send_json(wire.ANSWER, answer, sequence=frame.sequence)

    def _attach(self, request: Mapping[str, Any]) -> None:
        worker, session = _field(request, "worker", int), _field(request, "session", str)
        self._server.check_session(worker, session)
        self._become(worker, session)
        # A newer process may have joined while this one waited for its old connection to end.
        self._server.check_session(worker, session)

    def _become(self, worker: int, session: str) -> None:
        if self.worker != DRIVER:
            msg = f"{self.connection.peer}: is worker {self.worker} already"
            raise ProtocolError(msg)
        self._server.settings.check_worker(worker)
        self.worker, self.session = worker, session
        self.connection.peer = f"worker {worker} ({self.connection.peer})"
        self._order = tuple(self._server.order(worker))
        self._server.enter(self)

    def _lives(self, worker: int) -> None:
        """A worker has shown that it lives."""

    def _pulled(self, request: Mapping[str, Any]) -> None:
        self._center.pulled(self._member())

    def _pull(self, frame: Frame) -> None:
        """Send the center's chunk as it is: others may be writing it."""
        stop = frame.offset + frame.count
        if frame.count < 1 or stop > self._center.n_params or frame.count > self._server.settings.chunk:
            msg = (
                f"{self.connection.peer}: pull of [{frame.offset}, {stop}); the center has"
                f" n_params={self._center.n_params}, a chunk at most {self._server.settings.chunk}"
            )
            raise ProtocolError(msg)
        answer = Frame(wire.CHUNK, wire.FLOAT32, self.worker, frame.steps, frame.sequence, frame.offset, frame.count)
        # Within an exchange of a strategy with rounds, what is pulled is where the round has led.
        vector = self._center.vector if self._ticket is None else self._center.result(self._server.strategy)
        self.connection.send(answer, wire.number_bytes(vector[frame.offset : stop]))
        self._moved_bytes += frame.count * 4

    def _begin(self, frame: Frame) -> None:
        """Open an exchange, or go on with one whose connection broke."""
        worker = self._member()
        slot = self._center.slots[worker]
        if frame.sequence == int(slot[ENDED]) + 1:
            if int(slot[BEGUN]) == frame.sequence:
                self._reopen(slot)
            else:
                self._ticket = self._center.begin(worker)
        elif frame.sequence != int(slot[ENDED]):
            msg = f"{self.connection.peer}: exchange {frame.sequence} begun after exchange {int(slot[ENDED])}"
            raise ProtocolError(msg)
        ended = frame.sequence == int(slot[ENDED])
        if self._center.locks is not None and not ended:
            self._whole.close()
            self._whole.enter_context(self._center.locks.whole())
        place = len(self._order) if ended else int(slot[PLACE])
        ticket = self._ticket or self._center.reopened(worker)
        self._terms = ticket.terms(self._server.settings.n_workers, self._server.moving_rate)
        answer = {"place": place, "staleness": ticket.staleness, "total": ticket.total}
        self.connection.send_json(wire.ANSWER, answer, worker=worker, sequence=frame.sequence)

    def _reopen(self, slot: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
        if slot[MARK]:
            # The server was killed while it added this chunk. A part may be in: it is not added a second time.
            slot[UNCERTAIN] += np.uint64(1)
            slot[PLACE] = slot[MARK]
            slot[MARK] = 0
        if self._ticket is None:
            self._ticket = self._center.reopened(self.worker)

    def _push(self, frame: Frame) -> None:
        """Apply one chunk, once: chunks of an exchange come in the worker's order, and the slot knows how far it is."""
        slot = self._center.slots[self._member()]
        place = frame.steps
        span = self._server.chunks.ranges[self._order[place]] if 0 <= place < len(self._order) else (0, 0)
        if frame.dtype != self._server.wire_dtype or (frame.offset, frame.offset + frame.count) != span:
            msg = (
                f"{self.connection.peer}: push {place} of [{frame.offset}, +{frame.count}) with dtype {frame.dtype};"
                f" expected {span} with dtype {self._server.wire_dtype}"
            )
            raise ProtocolError(msg)
        open_here = frame.sequence == int(slot[BEGUN]) and int(slot[ENDED]) < frame.sequence
        if frame.sequence > int(slot[BEGUN]) or (open_here and place > int(slot[PLACE])):
            msg = (
                f"{self.connection.peer}: push {place} of exchange {frame.sequence}, but exchange {int(slot[BEGUN])}"
                f" stands at push {int(slot[PLACE])}"
            )
            raise ProtocolError(msg)
        with self._received_push(frame.count) as push:
            self._moved_bytes += frame.payload_bytes
            if not open_here or place < int(slot[PLACE]):
                slot[DUPLICATES] += np.uint64(1)
                return
            position, locks = self._order[place], self._center.locks
            with nullcontext() if locks is None else locks.chunk(position):
                slot[MARK] = place + 1
                is_watched = position == self._center.watched
                if is_watched:
                    self._center.begin_watched_push(self.worker)
                apply_push(self._center, self._server.chunks, position, push, self._terms)
                if is_watched:
                    self._center.end_watched_push(self.worker, push[: self._server.chunks.watch_floats])
                slot[PLACE] = place + 1
                slot[MARK] = 0

    @contextmanager
    def _received_push(self, n_floats: int) -> Iterator[Vector]:
        """Take a chunk off the connection, as float32."""
        coder = self._server.coder
        with self._server.buffers.borrow(n_floats if coder is None else n_floats + (n_floats + 1) // 2) as room:
            push = room[:n_floats]
            if coder is None:
                self.connection.receive_into(wire.number_bytes(push), "a pushed chunk")
            else:
                bits = room[n_floats:].view(np.uint16)[:n_floats]
                self.connection.receive_into(wire.number_bytes(bits), "a pushed chunk")
                coder.decode(bits, push)
            yield push

    def _end(self, frame: Frame) -> None:
        worker = self._member()
        slot = self._center.slots[worker]
        overlaps = 0
        if frame.sequence == int(slot[BEGUN]) and int(slot[ENDED]) < frame.sequence:
            if int(slot[PLACE]) != len(self._order) or self._ticket is None:
                msg = f"{self.connection.peer}: exchange {frame.sequence} ended after {int(slot[PLACE])} chunks"
                raise ProtocolError(msg)
            overlaps = self._center.end(worker, self._ticket, self._moved_bytes)
        elif frame.sequence != int(slot[ENDED]):
            msg = f"{self.connection.peer}: end of exchange {frame.sequence}, which is not open"
            raise ProtocolError(msg)
        self._ticket, self._moved_bytes = None, 0
        self._whole.close()
        self._lives(worker)
        self.connection.send_json(wire.ANSWER, {"overlaps": overlaps}, worker=worker, sequence=frame.sequence)

    def _member(self) -> int:
        if self.worker == DRIVER:
            msg = f"{self.connection.peer}: has not joined"
            raise ProtocolError(msg)
        return self.worker


class BookPeer(VectorPeer):
    """One authenticated connection to the server that keeps the books: a worker's or the driver's."""

    def __init__(self, server: ExchangeServer, connection: Connection, coordinator: Coordinator) -> None:
        """Serve nothing before ``run``."""
        super().__init__(server, connection)
        self._coordinator = coordinator
        self._calls |= {
            "describe": self._describe,
            "join": self._join,
            "ask": self._ask,
            "heartbeat": self._heartbeat,
            "event": self._event,
            "round": self._round,
            "state": self._state,
            "leave": self._leave,
            "status": lambda _: coordinator.status(),
        }
        self._operations[wire.STATISTICS] = self._statistics

    def _lives(self, worker: int) -> None:
        self._coordinator.heartbeat(worker)

    def _describe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        settings = self._server.settings
        return {
            "n_params": settings.n_params,
            "n_workers": settings.n_workers,
            "strategy": self._server.strategy.name,
            "options": dict(settings.options) if self._server.strategy.name != "alone" else {},
            "moving_rate": self._server.moving_rate,
            "chunk": settings.chunk,
            "statistics": settings.statistics.to_json(),
            "transport": settings.transport,
            "lock": settings.running_lock(),
            "wire_dtype": settings.running_wire_dtype(),
            "record": settings.record,
            "exchange_timeout_s": settings.exchange_timeout_s,
            "center_path": str(self._center.path),
            "center_token": self._center.token.hex(),
        }

    def _join(self, request: Mapping[str, Any]) -> dict[str, Any]:
        worker, session = _field(request, "worker", int), _field(request, "session", str)
        self._become(worker, "")
        welcome = self._coordinator.join(worker, session, _field(request, "transport", str))
        self.session = session
        return {"clock": welcome.clock, "sequence": int(self._center.slots[worker, ENDED])}

    def _ask(self, request: Mapping[str, Any]) -> Any:
        worker = self._member()
        call, args = _field(request, "ask", str), _field(request, "args", list)
        kinds = ASKABLE.get(call)
        if kinds is None or len(args) != len(kinds) or not all(map(_is_kind, args, kinds)):
            msg = f"{self.connection.peer}: {call}{tuple(args)} is not one of {', '.join(ASKABLE)} with its arguments"
            raise ProtocolError(msg)
        return self._coordinator.answer(worker, _field(request, "request", int), call, *args)

    def _heartbeat(self, request: Mapping[str, Any]) -> None:
        self._coordinator.heartbeat(self._member())

    def _event(self, request: Mapping[str, Any]) -> None:
        self._coordinator.event(self._member(), _field(request, "line", str))

    def _round(self, request: Mapping[str, Any]) -> bool:
        # The others push meanwhile: a whole exchange is not locked while it waits for them.
        self._whole.close()
        note = RoundNote.from_json(request.get("note"))
        return self._coordinator.await_round(self._member(), _field(request, "sequence", int), note)

    def _leave(self, request: Mapping[str, Any]) -> None:
        worker, self.session = self._member(), ""
        self._coordinator.leave(worker)

    def _state(self, request: Mapping[str, Any]) -> bool:
        """Take a worker's arrays: the request lists them, frames with their bytes follow."""
        worker, iteration = self._member(), _field(request, "iteration", int)
        meta, arrays = _field(request, "meta", dict), _field(request, "arrays", list)
        path = self._coordinator.state_path(worker, iteration)
        taken = path is not None and self._receive_state(path, arrays)
        if path is None:
            self._skip_state(_field(request, "bytes", int))
        if taken:
            self._coordinator.state_received(worker, iteration, meta)
        return taken

    def _receive_state(self, path: Path, arrays: list[Any]) -> bool:
        try:
            with StateFileWriter(path) as writer, self._server.buffers.borrow_bytes() as buffer:
                for entry in arrays:
                    if not _is_array_entry(entry):
                        msg = f"{self.connection.peer}: not (name, dtype, shape): {str(entry)[:80]}"
                        raise ProtocolError(msg)
                    name, dtype, shape = entry
                    missing = writer.begin(name, dtype, tuple(shape))
                    while missing:
                        piece = self._receive_piece(buffer)
                        writer.write(piece)
                        missing -= piece.nbytes
                writer.finish()
        except OSError as error:
            self._coordinator.fail(
                f"{path}: cannot write a worker's state ({error.strerror}); free space and try again"
            )
            msg = f"{path}: {error.strerror}"
            raise ExchangeUnavailable(msg) from error
        return True

    def _skip_state(self, missing: int) -> None:
        with self._server.buffers.borrow_bytes() as buffer:
            while missing > 0:
                missing -= self._receive_piece(buffer).nbytes

    def _receive_piece(self, buffer: memoryview) -> memoryview:
        frame = self.connection.receive_frame()
        if frame is None or frame.operation != wire.STATE or not 0 < frame.payload_bytes <= buffer.nbytes:
            msg = f"{self.connection.peer}: expected a piece of state of 1 to {buffer.nbytes:,} bytes, got {frame}"
            raise ProtocolError(msg)
        piece = buffer[: frame.payload_bytes]
        self.connection.receive_into(piece, "a worker's state")
        return piece

    def _statistics(self, frame: Frame) -> None:
        """Average BatchNorm's statistics; a repeated frame gets the first one's answer."""
        worker, n_values = self._member(), self._server.settings.statistics.n_values
        if frame.dtype != wire.FLOAT32 or frame.count != n_values:
            msg = f"{self.connection.peer}: {frame.count} statistics of dtype {frame.dtype}; the net has {n_values}"
            raise ProtocolError(msg)
        local = np.empty(n_values, np.float32)
        self.connection.receive_into(wire.number_bytes(local), "statistics")
        sequence, answer = self._server.last_statistics.get(worker, (0, local))
        if sequence != frame.sequence:
            answer = self._coordinator.meet_statistics(local)
            self._server.last_statistics[worker] = (frame.sequence, answer)
        self.connection.send(
            Frame(wire.STATISTICS, wire.FLOAT32, worker, 0, frame.sequence, 0, n_values), wire.number_bytes(answer)
        )


def _field(request: Mapping[str, Any], name: str, kind: type[_Kind]) -> _Kind:
    value = request.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        msg = f'call "{request.get("call")}": {name}={str(value)[:40]!r}: expected {kind.__name__}'
        raise ProtocolError(msg)
    return value


def _is_kind(value: Any, kind: type[Any] | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_array_entry(entry: Any) -> bool:
    """Whether a JSON value is (name, dtype, shape)."""
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    name, dtype, shape = entry
    names = isinstance(name, str) and isinstance(dtype, str)
    return names and isinstance(shape, list) and all(_is_kind(n, int) and 0 <= n < 2**40 for n in shape)
