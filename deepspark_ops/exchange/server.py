"""The exchange server: one process, one thread per connection, no lock on the center.

Started by ``launch.start_exchange`` as ``python -m deepspark_ops.exchange.server``: settings and secret come as one
line of JSON on standard input, the listening socket as an inherited descriptor. It prints ``ready`` and serves until
standard input ends, which is when the driver stops it or dies. It imports numpy and the standard library only.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType, UnionType
from typing import Any, TypeVar

import numpy as np

from deepspark_ops.errors import ConfigError, DeepSparkError, ExchangeUnavailable, ProtocolError
from deepspark_ops.events import DRIVER
from deepspark_ops.exchange import wire
from deepspark_ops.exchange.buffers import aligned_vector
from deepspark_ops.exchange.center import (
    BEGUN,
    DUPLICATES,
    ENDED,
    MARK,
    PLACE,
    UNCERTAIN,
    Center,
    Chunks,
    Ticket,
    apply_push,
)
from deepspark_ops.exchange.coordinator import Coordinator
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state_file import StateFileWriter
from deepspark_ops.exchange.strategies import Terms
from deepspark_ops.exchange.wire import Connection, Frame
from deepspark_ops.exchange.wire_numbers import CODES, PushCoder
from deepspark_ops.param_vector import Vector

logger = logging.getLogger(__name__)

MAX_HANDSHAKES = 64
"""Connections that have not proved who they are; more wait in the listening queue."""
PUSH_BUFFERS = 16
"""Chunks that may be received at the same time; memory stays the same however many workers there are."""
HOUSEKEEPING_S = 0.2
THREAD_STACK_BYTES = 512 << 10
ASKABLE = {"request_grant": (int,), "acknowledge": (int,), "lease": (str,), "return_lease": (str, int, int | None)}
"""Control calls that are answered once per request number, and their arguments."""

_PR_SET_PDEATHSIG = 1
_Kind = TypeVar("_Kind")


class ExchangeServer:
    """Accepts connections and hands each to a thread."""

    def __init__(self, settings: ExchangeSettings, secret: bytes, center: Center, listener: socket.socket) -> None:
        """Take over the listening socket; nothing is accepted before ``start``."""
        self.settings = settings
        self.center = center
        center.use_locks(settings.running_lock(), settings.exchange_timeout_s)
        self.coordinator = Coordinator(settings, center)
        self.strategy = settings.running_strategy()
        self.moving_rate = settings.alpha()
        self.chunks = Chunks(settings.n_params, settings.chunk, self.strategy, settings.statistics)
        self.wire_dtype = CODES[settings.running_wire_dtype()]
        n_floats = min(settings.chunk, settings.n_params)
        self.coder = None
        if self.wire_dtype != wire.FLOAT32:
            self.coder = PushCoder(settings.running_wire_dtype(), n_floats)
            n_floats += (n_floats + 1) // 2
        self.buffers = _BufferStore(n_floats)
        self.limit_bytes = max(4 * settings.chunk, 4 * settings.statistics.n_values, wire.STATE_PIECE_BYTES)
        self.last_statistics: dict[int, tuple[int, Vector]] = {}
        self._secret = secret
        self._listener = listener
        self._handshakes = threading.BoundedSemaphore(MAX_HANDSHAKES)
        self._lock = threading.Lock()
        self._members: dict[int, _Peer] = {}
        self._gone: list[tuple[float, int, str]] = []
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begin to accept."""
        threading.stack_size(THREAD_STACK_BYTES)
        for target in (self._accept, self._keep_house):
            threading.Thread(target=target, name=target.__name__.strip("_"), daemon=True).start()

    def stop(self) -> None:
        """Accept nothing more and close every connection."""
        self._stopping.set()
        self._listener.close()
        with self._lock:
            members = list(self._members.values())
        for member in members:
            member.connection.close()

    def enter(self, peer: _Peer) -> None:
        """Make ``peer`` the one connection of its worker; an older one is closed and waited for."""
        with self._lock:
            before = self._members.get(peer.worker)
            self._members[peer.worker] = peer
        if before is not None and before is not peer:
            before.connection.close()
            before.ended.wait(self.settings.exchange_timeout_s)

    def exit(self, peer: _Peer) -> None:
        """A connection ended; its worker has a while to come back."""
        with self._lock:
            if self._members.get(peer.worker) is peer:
                del self._members[peer.worker]
                if peer.session:
                    patience = min(self.settings.exchange_timeout_s, self.settings.grant_timeout_s)
                    self._gone.append((time.monotonic() + patience, peer.worker, peer.session))
        peer.ended.set()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            self._handshakes.acquire()
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                self._handshakes.release()
                if not self._stopping.is_set():
                    # Out of descriptors, most likely: those who are in go on, newcomers wait in the queue.
                    logger.warning("cannot accept a connection: %s", error)
                    time.sleep(HOUSEKEEPING_S)
                continue
            threading.Thread(target=self._serve, args=(sock, address), name=f"peer {address}", daemon=True).start()

    def _serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """One connection's thread, from the first byte to the last."""
        peer = f"{address[0]}:{address[1]}"
        settings = self.settings
        try:
            try:
                wire.greet_client(sock, secret=self._secret, run_id=settings.run_id, peer=peer)
            finally:
                self._handshakes.release()
            connection = Connection(
                sock,
                run_id=settings.run_id,
                limit_bytes=self.limit_bytes,
                timeout_s=settings.exchange_timeout_s,
                peer=peer,
            )
            _Peer(self, connection).run()
        except (DeepSparkError, OSError) as error:
            if not self._stopping.is_set():
                logger.warning("%s", error)
        except Exception as error:
            # The outermost loop of this thread: a fault of ours. Others go on; the driver hears of it.
            logger.exception("connection of %s", peer)
            self.coordinator.fail(f"exchange server: {type(error).__name__}: {error}; see its log above")
        finally:
            sock.close()

    def _keep_house(self) -> None:
        while not self._stopping.wait(HOUSEKEEPING_S):
            self.coordinator.expire()
            now = time.monotonic()
            with self._lock:
                overdue = [gone for gone in self._gone if gone[0] <= now]
                self._gone = [gone for gone in self._gone if gone[0] > now]
                overdue = [gone for gone in overdue if not self._is_back(gone[1], gone[2])]
            for _, worker, session in overdue:
                self.coordinator.lose(worker, session, "its connection ended")

    def _is_back(self, worker: int, session: str) -> bool:
        member = self._members.get(worker)
        return member is not None and member.session == session


class _Peer:
    """One authenticated connection: a worker's or the driver's."""

    def __init__(self, server: ExchangeServer, connection: Connection) -> None:
        self.connection = connection
        self.worker = DRIVER
        self.session = ""
        self.ended = threading.Event()
        self._server = server
        self._coordinator = server.coordinator
        self._center = server.center
        self._order: tuple[int, ...] = ()
        self._whole = ExitStack()
        self._ticket: Ticket | None = None
        self._terms = Terms(server.settings.n_workers, server.moving_rate)
        self._moved_bytes = 0
        self._calls: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "describe": self._describe,
            "join": self._join,
            "attach": self._attach,
            "ask": self._ask,
            "heartbeat": self._heartbeat,
            "event": self._event,
            "pulled": self._pulled,
            "round": self._round,
            "state": self._state,
            "leave": self._leave,
            "status": lambda _: self._coordinator.status(),
        }
        self._operations: dict[int, Callable[[Frame], None]] = {
            wire.CALL: self._call,
            wire.PULL: self._pull,
            wire.PUSH: self._push,
            wire.BEGIN: self._begin,
            wire.END: self._end,
            wire.STATISTICS: self._statistics,
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

    # Control calls.

    def _call(self, frame: Frame) -> None:
        request = self.connection.receive_json(frame)
        call = self._calls.get(str(request.get("call"))) if isinstance(request, dict) else None
        if call is None:
            msg = f"{self.connection.peer}: unknown call {str(request)[:80]}; known: {', '.join(self._calls)}"
            raise ProtocolError(msg)
        answer = call(request)
        self.connection.send_json(wire.ANSWER, answer, sequence=frame.sequence)

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

    def _attach(self, request: Mapping[str, Any]) -> None:
        worker, session = _field(request, "worker", int), _field(request, "session", str)
        self._coordinator.check_session(worker, session)
        self._become(worker, session)
        # A newer process may have joined while this one waited for its old connection to end.
        self._coordinator.check_session(worker, session)

    def _become(self, worker: int, session: str) -> None:
        if self.worker != DRIVER:
            msg = f"{self.connection.peer}: is worker {self.worker} already"
            raise ProtocolError(msg)
        self._coordinator.check_worker(worker)
        self.worker, self.session = worker, session
        self.connection.peer = f"worker {worker} ({self.connection.peer})"
        self._order = tuple(self._server.chunks.order(worker, self._server.settings.n_workers))
        self._server.enter(self)

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

    def _pulled(self, request: Mapping[str, Any]) -> None:
        self._center.pulled(self._member())

    def _round(self, request: Mapping[str, Any]) -> bool:
        # The others push meanwhile: a whole exchange is not locked while it waits for them.
        self._whole.close()
        return self._coordinator.await_round(self._member(), _field(request, "sequence", int))

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

    # Vectors.

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
        self.connection.send(answer, wire.number_bytes(self._center.vector[frame.offset : stop]))
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
                with self._counted(position, push):
                    apply_push(self._center, self._server.chunks, position, push, self._terms)
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

    def _counted(self, position: int, push: Vector) -> AbstractContextManager[None]:
        if position != self._center.watched:
            return nullcontext()
        return self._center.counted_push(self.worker, push[: self._server.chunks.watch_floats])

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
        self._coordinator.heartbeat(worker)
        self.connection.send_json(wire.ANSWER, {"overlaps": overlaps}, worker=worker, sequence=frame.sequence)

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

    def _member(self) -> int:
        if self.worker == DRIVER:
            msg = f"{self.connection.peer}: has not joined"
            raise ProtocolError(msg)
        return self.worker


class _BufferStore:
    """A fixed number of chunk buffers for all connections; a thread that finds none waits for one."""

    def __init__(self, n_floats: int) -> None:
        self._n_floats = max(n_floats, wire.STATE_PIECE_BYTES // 4)
        self._free: list[Vector] = []
        self._room = threading.BoundedSemaphore(PUSH_BUFFERS)

    @contextmanager
    def borrow(self, n_floats: int) -> Iterator[Vector]:
        """Give a float32 vector, shape (n_floats,), with arbitrary content."""
        with self._room:
            buffer = self._free.pop() if self._free else aligned_vector(self._n_floats)
            try:
                yield buffer[:n_floats]
            finally:
                self._free.append(buffer)

    @contextmanager
    def borrow_bytes(self) -> Iterator[memoryview]:
        """Give room for one piece of state."""
        with self.borrow(wire.STATE_PIECE_BYTES // 4) as buffer:
            yield wire.number_bytes(buffer)


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


def _end_with_driver(driver_pid: int) -> None:
    """Have the kernel tell this process when the driver dies, however it dies.

    The signal comes when the driver's *thread* that started us ends; only a new parent means that the driver is gone.
    Standard input ends with the driver too, unless a process that it forked holds the other end.
    """

    def check_parent(_signal: int, _frame: FrameType | None) -> None:
        if os.getppid() != driver_pid:
            raise SystemExit(0)

    signal.signal(signal.SIGHUP, check_parent)
    # A terminal's Ctrl-C or an Airflow kill reaches the whole group: the driver decides, and we end with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGHUP))
    check_parent(0, None)


def main() -> None:
    """Run the server until standard input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s exchange server: %(message)s")
    plain = json.loads(sys.stdin.buffer.readline())
    settings = ExchangeSettings.from_json(plain["settings"])
    center = Center.open(Path(plain["center_path"]), bytes.fromhex(plain["center_token"]))
    listener = socket.socket(fileno=plain["listener_fd"])
    server = ExchangeServer(settings, bytes.fromhex(plain["secret"]), center, listener)
    try:
        _end_with_driver(plain["driver_pid"])
        server.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()
    finally:
        try:
            # The driver's end shows twice, and the second sign must not keep us from what is left to do.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        finally:
            center.unlink()
            server.stop()


if __name__ == "__main__":
    main()
