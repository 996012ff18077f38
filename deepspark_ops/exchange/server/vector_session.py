"""A connection to a server of a key range, from the first frame to the last, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from deepspark_ops.errors import ConfigError, ProtocolError, PushRefused
from deepspark_ops.events import DRIVER
from deepspark_ops.exchange.center.pushes import push_applier, settle_unfinished
from deepspark_ops.exchange.center.worker_counters import (
    APPLIED,
    APPLYING,
    BEGUN,
    DUPLICATES,
    ENDED,
    NOBODY,
    UNCERTAIN,
    session_number,
)
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.chunk_stream import Begun
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import Vector

if TYPE_CHECKING:
    from deepspark_ops.exchange.server.process import ExchangeServer

LOCK_SILENCE_SHARE = 0.25
"""A worker with the lock of the whole center may be silent for this share of ``exchange_timeout_s``; others wait for
the lock as long as ``exchange_timeout_s``."""

_Kind = TypeVar("_Kind")


class VectorSession:
    """An authenticated connection to the server of a key range: the worker pulls and pushes chunks."""

    def __init__(self, server: ExchangeServer, connection: Connection) -> None:
        """Wait for ``run``; no frame is served before."""
        self.connection = connection
        self.worker = DRIVER
        self.session = ""
        self._session_number = NOBODY
        self.ended = threading.Event()
        self._server = server
        self._center = server.center
        self._order: tuple[int, ...] = ()
        self._center_lock = ExitStack()
        self._holds_center = False
        self._context: ExchangeContext | None = None  # of the open exchange
        self._apply: Callable[[int, Vector], None] | None = None
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
        """Serve frames until the other side closes the connection."""
        try:
            while (frame := self._next_frame()) is not None:
                self._operations.get(frame.operation, self._refuse)(frame)
        except (ProtocolError, ConfigError) as error:
            self.connection.refuse(error)
            raise
        finally:
            self._center_lock.close()
            self._server.exit(self)
            # These refer back to this session: without the cleanup the buffers stay until a garbage collection.
            self._calls.clear()
            self._operations.clear()
            self._apply = None

    def _next_frame(self) -> Frame | None:
        """Wait for a frame; the wait has a limit only while this session holds the lock of the whole center."""
        return self.connection.receive_frame() if self._holds_center else self.connection.wait_frame()

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
        worker, session = field_of(request, "worker", int), field_of(request, "session", str)
        self._server.check_session(worker, session)
        self._become(worker)
        self._take_session(session)
        # A newer process may have joined while this process waited for the end of its old connection.
        self._server.check_session(worker, session)

    def _become(self, worker: int) -> None:
        if self.worker != DRIVER:
            msg = f"{self.connection.peer}: is worker {self.worker} already"
            raise ProtocolError(msg)
        self._server.settings.check_worker(worker)
        self.worker = worker
        self.connection.peer = f"worker {worker} ({self.connection.peer})"
        self._order = tuple(self._server.order(worker))
        self._server.enter(self)

    def _take_session(self, session: str) -> None:
        self.session, self._session_number = session, session_number(session)

    def _lives(self, worker: int) -> None:
        """Note that a worker lives."""

    def _pulled(self, request: Mapping[str, Any]) -> None:
        self._center.pulled(self._member())

    def _pull(self, frame: Frame) -> None:
        """Send the center's present chunk; other workers may be writing the chunk."""
        stop = frame.offset + frame.count
        if frame.count < 1 or stop > self._center.n_params or frame.count > self._server.settings.chunk:
            msg = (
                f"{self.connection.peer}: pull of [{frame.offset}, {stop}); the center has"
                f" n_params={self._center.n_params}, a chunk at most {self._server.settings.chunk}"
            )
            raise ProtocolError(msg)
        answer = Frame(wire.CHUNK, wire.FLOAT32, self.worker, frame.turn, frame.sequence, frame.offset, frame.count)
        # Within an exchange of a strategy with rounds, the worker pulls the result of the round.
        vector = self._center.vector if self._context is None else self._center.result(self._server.strategy)
        self.connection.send(answer, wire.number_bytes(vector[frame.offset : stop]))
        self._moved_bytes += frame.count * 4

    def _begin(self, frame: Frame) -> None:
        """Open an exchange, or continue an exchange after a broken connection."""
        worker, counters = self._own_counters()
        if frame.sequence == int(counters[ENDED]) + 1:
            if int(counters[BEGUN]) == frame.sequence:
                self._reopen(counters)
            else:
                counters[APPLIED] = counters[APPLYING] = 0
                self._context = self._center.begin(worker, self._server.moving_rate, self._session_number)
        elif frame.sequence != int(counters[ENDED]):
            msg = f"{self.connection.peer}: exchange {frame.sequence} begun after exchange {int(counters[ENDED])}"
            raise ProtocolError(msg)
        ended = frame.sequence == int(counters[ENDED])
        if not ended:
            self._lock_center()
        turn = len(self._order) if ended else int(counters[APPLIED])
        context = self._context or self._reopened()
        self._apply = push_applier(self._center, self._server.chunks, worker, context)
        # With the lock of the whole center, no other exchange is open.
        others_open = 0 if self._holds_center else context.others_open
        answer = Begun(turn, context.staleness, context.total, others_open, context.n_workers)._asdict()
        self.connection.send_json(wire.ANSWER, answer, worker=worker, sequence=frame.sequence)

    def _lock_center(self) -> None:
        """With ``lock: full``, hold the center until the exchange ends or its worker is silent for too long."""
        self._unlock_center()
        if self._center.locks is None or self._center.locks.mode != "full":
            return
        self._center_lock.enter_context(self._center.locks.center())
        self._holds_center = True
        self.connection.use_timeout(LOCK_SILENCE_SHARE * self._server.settings.exchange_timeout_s)

    def _unlock_center(self) -> None:
        self._center_lock.close()
        if self._holds_center:
            self._holds_center = False
            self.connection.use_timeout(self._server.settings.exchange_timeout_s)

    def _reopen(self, counters: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
        if counters[APPLYING]:
            # The server was killed while adding this chunk. A part may be in the center: the chunk is not added again.
            settle_unfinished(self._center, self._server.chunks, self._order[int(counters[APPLYING]) - 1])
            counters[UNCERTAIN] += np.uint64(1)
            counters[APPLIED] = counters[APPLYING]
            counters[APPLYING] = 0
        if self._context is None:
            self._context = self._reopened()

    def _reopened(self) -> ExchangeContext:
        return self._center.reopened(self.worker, self._server.moving_rate, self._session_number)

    def _push(self, frame: Frame) -> None:
        """Apply a chunk once: chunks come in the worker's order, and its counters have the last applied chunk."""
        _, counters = self._own_counters()
        turn = frame.turn
        span = self._server.chunks.ranges[self._order[turn]] if 0 <= turn < len(self._order) else (0, 0)
        if frame.dtype != self._server.wire_dtype or (frame.offset, frame.offset + frame.count) != span:
            msg = (
                f"{self.connection.peer}: push {turn} of [{frame.offset}, +{frame.count}) with dtype {frame.dtype};"
                f" expected {span} with dtype {self._server.wire_dtype}"
            )
            raise ProtocolError(msg)
        open_here = frame.sequence == int(counters[BEGUN]) and int(counters[ENDED]) < frame.sequence
        if frame.sequence > int(counters[BEGUN]) or (
            open_here and (self._context is None or turn > int(counters[APPLIED]))
        ):
            msg = (
                f"{self.connection.peer}: push {turn} of exchange {frame.sequence}, but"
                f" exchange {int(counters[BEGUN])} expects push {int(counters[APPLIED])}"
            )
            raise ProtocolError(msg)
        with self._received_push(frame.count) as push:
            self._moved_bytes += frame.payload_bytes
            apply = self._apply
            if apply is None or not open_here or turn < int(counters[APPLIED]):
                counters[DUPLICATES] += np.uint64(1)
                return
            position, locks = self._order[turn], self._center.locks
            with nullcontext() if locks is None else locks.chunk(position):
                counters[APPLYING] = turn + 1
                try:
                    apply(position, push)
                except PushRefused:
                    counters[APPLYING] = 0  # the center has no part of this chunk
                    raise
                counters[APPLIED] = turn + 1
                counters[APPLYING] = 0

    @contextmanager
    def _received_push(self, n_floats: int) -> Iterator[Vector]:
        """Receive a chunk from the connection, as float32."""
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
        worker, counters = self._own_counters()
        overlaps = 0
        if frame.sequence == int(counters[BEGUN]) and int(counters[ENDED]) < frame.sequence:
            if int(counters[APPLIED]) != len(self._order) or self._context is None:
                msg = f"{self.connection.peer}: exchange {frame.sequence} ended after {int(counters[APPLIED])} chunks"
                raise ProtocolError(msg)
            overlaps = self._center.end(worker, self._context, self._moved_bytes)
        elif frame.sequence != int(counters[ENDED]):
            msg = f"{self.connection.peer}: end of exchange {frame.sequence}, which is not open"
            raise ProtocolError(msg)
        self._context, self._moved_bytes = None, 0
        self._unlock_center()
        self._lives(worker)
        self.connection.send_json(wire.ANSWER, {"overlaps": overlaps}, worker=worker, sequence=frame.sequence)

    def _own_counters(self) -> tuple[int, np.ndarray[Any, np.dtype[np.uint64]]]:
        """Return the worker and its counters; only the worker's present process may change the counters."""
        worker = self._member()
        self._center.check_session(worker, self._session_number)
        return worker, self._center.counters[worker]

    def _member(self) -> int:
        if self.worker == DRIVER:
            msg = f"{self.connection.peer}: has not joined"
            raise ProtocolError(msg)
        return self.worker


def field_of(request: Mapping[str, Any], name: str, kind: type[_Kind]) -> _Kind:
    """Return a field of a call.

    Raises:
        ProtocolError: It is missing or of another kind.
    """
    value = request.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        msg = f'call "{request.get("call")}": {name}={str(value)[:40]!r}: expected {kind.__name__}'
        raise ProtocolError(msg)
    return value
