"""A worker's side of the exchange over a socket or, on the server's host, over shared memory.

``WorkerLink`` is all that a worker loop needs to know; ``connect`` makes one. Nothing here imports a framework.
"""

from __future__ import annotations

import json
import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, ExchangeUnavailable, ProtocolError
from deepspark_ops.events import DRIVER, Event
from deepspark_ops.exchange import wire
from deepspark_ops.exchange.buffers import VectorPool, aligned_vector
from deepspark_ops.exchange.center import Center, Chunks, meet_in_memory
from deepspark_ops.exchange.grants import Finished, Grant, GrantAnswer, Wait, answer_from_json
from deepspark_ops.exchange.leases import Lease
from deepspark_ops.exchange.link import ExchangeReport, ExchangeStatus, Welcome, WorkerLink
from deepspark_ops.exchange.round_closing import RoundNote
from deepspark_ops.exchange.run_record import TurnLocks, WorkerRecord
from deepspark_ops.exchange.settings import Transport
from deepspark_ops.exchange.strategies import Terms, configure
from deepspark_ops.exchange.wire import Connection, Frame
from deepspark_ops.exchange.wire_numbers import CODES, WireDtype, make_pushes
from deepspark_ops.param_vector import StatisticBlobs, Vector

__all__ = [
    "ExchangeAddress",
    "ExchangeReport",
    "ExchangeStatus",
    "Finished",
    "Grant",
    "GrantAnswer",
    "Lease",
    "ServerConnection",
    "Wait",
    "Welcome",
    "WorkerLink",
    "connect",
]

logger = logging.getLogger(__name__)

_FLOAT32 = np.dtype(np.float32)

WINDOW_BYTES = 4 << 20
LEAST_WINDOW_CHUNKS = 3
"""Chunks asked for and not yet answered with a push: enough that both directions and both ends are busy, also when
either end waits a while for a core."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 1.0

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ExchangeAddress:
    """Where the server is and how to prove that one belongs to the run. Travels inside the Spark task's closure.

    Attributes:
        host: Address the server listens on.
        port: Its port.
        run_id: The run.
        secret: 32 bytes; never in a file, an argument, the environment or a log.
        transport: ``auto``: shared memory where the center can be mapped, else the socket.
        exchange_timeout_s: Longest wait for the server.
        more_ports: Ports of the servers of further key ranges; the first server's range comes first.
    """

    host: str
    port: int
    run_id: int
    secret: bytes = field(repr=False)
    transport: Transport = "auto"
    exchange_timeout_s: float = 30.0
    more_ports: tuple[int, ...] = ()

    @property
    def server(self) -> str:
        """How errors call the other end."""
        return f"exchange server {self.host}:{self.port}"


def connect(address: ExchangeAddress) -> WorkerLink:
    """Return a link to a running exchange; ``join`` makes the connection."""
    return SocketLink(address)


class ServerConnection:
    """A connection to the server that comes back: requests are repeated over a new one until time is up.

    Not thread-safe.
    """

    def __init__(self, address: ExchangeAddress, who: str) -> None:
        """Connect at the first request.

        Args:
            address: The server.
            who: How errors call this process: ``worker 3``, ``driver``.
        """
        self.address = address
        self.who = who
        self.limit_bytes = wire.MAX_JSON_BYTES
        self._connection: Connection | None = None
        self._sequence = 0
        self._introduce: Callable[[Connection], None] | None = None

    def introduce_with(self, introduce: Callable[[Connection], None]) -> None:
        """Have ``introduce`` called on every new connection, before anything else is sent."""
        self._introduce = introduce

    def repeat(self, attempt: Callable[[Connection, bool], _Result]) -> _Result:
        """Call ``attempt(connection, is_repeated)`` until it succeeds.

        Raises:
            ExchangeUnavailable: Not within ``exchange_timeout_s``; the message counts the tries.
            ProtocolError: As raised by ``attempt``: repeating does not help.
        """
        deadline = time.monotonic() + self.address.exchange_timeout_s
        backoff_s, tries = FIRST_BACKOFF_S, 0
        while True:
            tries += 1
            try:
                return attempt(self._connected(deadline), tries > 1)
            except ExchangeUnavailable as error:
                self.close()
                if time.monotonic() + backoff_s >= deadline:
                    raise self._given_up(tries, error) from error
                logger.warning("%s: %s; trying again", self.who, error)
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            except ProtocolError:
                self.close()
                raise

    def call(self, request: Mapping[str, Any], *, worker: int = DRIVER) -> Any:
        """Make a control call that may be repeated; returns its answer."""
        self._sequence += 1
        return self.repeat(lambda connection, _: call_once(connection, request, worker, self._sequence))

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self, deadline: float) -> Connection:
        if self._connection is not None:
            return self._connection
        address = self.address
        left = max(0.01, deadline - time.monotonic())
        try:
            sock = socket.create_connection((address.host, address.port), timeout=left)
        except OSError as error:
            msg = f"cannot connect to {address.server}: {error.strerror or error}"
            raise ExchangeUnavailable(msg) from error
        try:
            wire.greet_server(sock, secret=address.secret, run_id=address.run_id, peer=address.server, timeout_s=left)
            connection = Connection(
                sock,
                run_id=address.run_id,
                limit_bytes=self.limit_bytes,
                timeout_s=address.exchange_timeout_s,
                peer=address.server,
            )
            if self._introduce is not None:
                self._introduce(connection)
        except (OSError, ExchangeUnavailable, ProtocolError):
            sock.close()
            raise
        self._connection = connection
        return connection

    def _given_up(self, tries: int, error: ExchangeUnavailable) -> ExchangeUnavailable:
        return ExchangeUnavailable(
            f"{self.who}: no answer from {self.address.server} after"
            f" exchange_timeout_s={self.address.exchange_timeout_s:g}, {tries} tries; is the driver still running?"
            f" (last: {error})"
        )


def call_once(connection: Connection, request: Mapping[str, Any], worker: int, sequence: int) -> Any:
    """Send one control call and return its answer.

    Raises:
        ExchangeUnavailable: No answer.
        ProtocolError: The server refused.
    """
    connection.send_json(wire.CALL, request, worker=worker, sequence=sequence)
    return expect_json(connection, wire.ANSWER)


def expect_json(connection: Connection, operation: int) -> Any:
    """Wait for a frame of ``operation`` and return its JSON."""
    return connection.receive_json(_expect(connection, operation))


def _expect(connection: Connection, operation: int) -> Frame:
    frame = connection.receive_frame()
    if frame is None:
        msg = f"{connection.peer} closed the connection"
        raise ExchangeUnavailable(msg)
    if frame.operation == wire.ERROR:
        raise_refusal(connection.receive_json(frame))
    if frame.operation != operation:
        msg = f"{connection.peer} answered with operation {frame.operation}; expected {operation}"
        raise ProtocolError(msg)
    return frame


def raise_refusal(found: Any) -> None:
    """Raise what an ``ERROR`` frame carries."""
    kind, message = str(found.get("kind")), str(found.get("message"))
    if kind == "ConfigError":
        raise ConfigError(message)
    raise ProtocolError(message)


class SocketLink:
    """A ``WorkerLink`` to a server: control by socket, vectors by shared memory or by the same socket.

    Shared memory is used where the file that the server names can be opened and holds the token that it names; a
    container or another host with a file of that name does not. One lock serves all calls: a thread that wants a lease
    waits for an exchange by socket; an exchange in shared memory does not take it.
    """

    def __init__(self, address: ExchangeAddress) -> None:
        """Connect at ``join``."""
        self._address = address
        self._server = ServerConnection(address, "worker")
        self._session = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._requests = 0
        self._worker = DRIVER
        self._record: WorkerRecord | None = None
        self._transfer: _SharedMemoryTransfer | _SocketTransfer | None = None

    def join(self, worker: int) -> Welcome:
        """See ``WorkerLink``."""
        with self._lock:
            self._server.who = f"worker {worker}"
            found = self._server.call({"call": "describe"})
            statistics = StatisticBlobs.from_json(found["statistics"])
            self._server.limit_bytes = max(4 * found["chunk"], 4 * statistics.n_values)
            self._server.close()
            center = self._open_center(found)
            transport = "socket" if center is None else "shm"
            request = {"call": "join", "worker": worker, "session": self._session, "transport": transport}
            joined = self._server.call(request, worker=worker)
            self._worker = worker
            self._server.introduce_with(self._attach)
            plan = _Plan(found if center is None else {**found, "wire_dtype": "float32"}, statistics, worker)
            if center is None:
                servers = [self._server, *(self._further_server(port) for port in self._address.more_ports)]
                self._transfer = _SocketTransfer(plan, servers, joined["sequence"])
            else:
                self._record = WorkerRecord(Path(found["record"]), worker) if found["record"] else None
                self._transfer = _SharedMemoryTransfer(plan, self._server, center, self._record)
        return Welcome(
            joined["clock"],
            found["n_params"],
            found["n_workers"],
            found["strategy"],
            found["moving_rate"],
            found["chunk"],
            transport,
        )

    def request_grant(self, want: int, *, held: Grant | None = None) -> GrantAnswer:
        """See ``WorkerLink``."""
        if held is None:
            return answer_from_json(self._ask("request_grant", want))
        return answer_from_json(self._ask("request_next", want, held.id))

    def acknowledge(self, grant: Grant) -> bool:
        """See ``WorkerLink``."""
        return bool(self._ask("acknowledge", grant.id))

    def pull(self) -> Vector:
        """See ``WorkerLink``."""
        transfer = self._joined()
        if isinstance(transfer, _SharedMemoryTransfer):
            return transfer.pull()
        with self._lock:
            return transfer.pull()

    def look(self, *, as_start: bool = False) -> Vector:
        """See ``WorkerLink``."""
        transfer = self._joined()
        if isinstance(transfer, _SharedMemoryTransfer):
            return transfer.look(as_start=as_start)
        with self._lock:
            return transfer.look(as_start=as_start)

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """See ``WorkerLink``."""
        transfer = self._joined()
        if isinstance(transfer, _SharedMemoryTransfer):
            return transfer.exchange(local, measure_distance, note, self._lock)
        with self._lock:
            return transfer.exchange(local, measure_distance, note)

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._joined().use_moving_rate(moving_rate)

    def lease(self, dataset: str = "train") -> Lease | None:
        """See ``WorkerLink``."""
        plain = self._ask("lease", dataset)
        return None if plain is None else Lease(**plain)

    def return_lease(self, lease: Lease, consumed: int | None = None) -> None:
        """See ``WorkerLink``."""
        self._ask("return_lease", lease.dataset, lease.id, consumed)

    def send_event(self, event: Event) -> None:
        """See ``WorkerLink``."""
        self._call({"call": "event", "line": event.to_json()})

    def send_state(
        self, iteration: int, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """See ``WorkerLink``."""
        plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        request = {
            "call": "state",
            "iteration": iteration,
            "meta": dict(meta),
            "arrays": [[name, plain[name].dtype.str, list(array.shape)] for name, array in arrays.items()],
            "bytes": sum(array.nbytes for array in plain.values()),
        }

        def attempt(connection: Connection, _: bool) -> Any:
            connection.send_json(wire.CALL, request, worker=self._worker)
            for array in plain.values():
                data = memoryview(array.reshape(-1).view(np.uint8).data)
                for start in range(0, data.nbytes, wire.STATE_PIECE_BYTES):
                    piece = data[start : start + wire.STATE_PIECE_BYTES]
                    connection.send(Frame(wire.STATE, wire.BYTES, self._worker, count=piece.nbytes), piece)
            return expect_json(connection, wire.ANSWER)

        self._joined()
        with self._lock:
            self._server.repeat(attempt)

    def heartbeat(self) -> None:
        """See ``WorkerLink``."""
        self._call({"call": "heartbeat"})

    def leave(self) -> None:
        """See ``WorkerLink``."""
        self._call({"call": "leave"})

    def close(self) -> None:
        """See ``WorkerLink``."""
        with self._lock:
            self._server.close()
            if self._transfer is not None:
                self._transfer.close()
            if self._record is not None:
                self._record.close()
            self._transfer = None

    def _further_server(self, port: int) -> ServerConnection:
        server = ServerConnection(replace(self._address, port=port), self._server.who)
        server.limit_bytes = self._server.limit_bytes
        server.introduce_with(self._attach)
        return server

    def _open_center(self, found: Mapping[str, Any]) -> Center | None:
        if found["record"] and "socket" in (self._address.transport, found["transport"]):
            msg = "record: only workers that write the center in shared memory are recorded; use transport=auto or shm"
            raise ConfigError(msg)
        if "socket" in (self._address.transport, found["transport"]):
            return None
        try:
            center = Center.open(Path(found["center_path"]), bytes.fromhex(found["center_token"]))
        except (OSError, ProtocolError) as error:
            if "shm" in (self._address.transport, found["transport"]) or found["record"]:
                msg = f"transport=shm: the center cannot be mapped here ({error}); use transport=auto"
                raise ConfigError(msg) from error
            return None
        center.use_locks(found["lock"], self._address.exchange_timeout_s)
        return center

    def _attach(self, connection: Connection) -> None:
        call_once(connection, {"call": "attach", "worker": self._worker, "session": self._session}, self._worker, 0)

    def _ask(self, ask: str, *args: Any) -> Any:
        self._joined()
        with self._lock:
            self._requests += 1
            request = {"call": "ask", "request": self._requests, "ask": ask, "args": args}
            answer = self._server.call(request, worker=self._worker)
            if self._record is not None:
                self._record.answer(ask, answer)
            return answer

    def _call(self, request: Mapping[str, Any]) -> Any:
        self._joined()
        with self._lock:
            return self._server.call(request, worker=self._worker)

    def _joined(self) -> _SharedMemoryTransfer | _SocketTransfer:
        if self._transfer is None:
            msg = "join(worker) comes before any other call of a link"
            raise ProtocolError(msg)
        return self._transfer


class _Plan:
    """What both ways of moving vectors share."""

    def __init__(self, found: Mapping[str, Any], statistics: StatisticBlobs, worker: int) -> None:
        self.worker = worker
        self.n_params: int = found["n_params"]
        self.n_workers: int = found["n_workers"]
        self.moving_rate: float = found["moving_rate"]
        self.chunk = min(found["chunk"], found["n_params"])
        self.strategy = configure(found["strategy"], found["options"])
        self.wire_dtype: WireDtype = found["wire_dtype"]
        self.statistics = statistics
        self.chunks = Chunks(self.n_params, found["chunk"], self.strategy, statistics)
        self.order = tuple(self.chunks.order(worker, self.n_workers))
        self.vectors = VectorPool(self.n_params)
        self.start: Vector | None = None
        self._shape = (self.n_params,)
        self.bytes_up = wire.ITEM_BYTES[CODES[self.wire_dtype]] * self.n_params
        self.bytes_down = 0 if self.strategy.pulls == "never" else 4 * self.n_params

    def began_with(self, vector: Vector) -> None:
        """Note what the worker goes on from, if the strategy wants to know."""
        if self.strategy.keeps_start:
            self.start = vector

    @property
    def lacks_start(self) -> bool:
        """Whether the strategy needs a pull before the first exchange."""
        return self.strategy.keeps_start and self.start is None

    def check(self, local: Vector) -> None:
        """Refuse what is not this net's vector.

        Raises:
            ProtocolError: Another length, dtype or memory layout.
        """
        if local.dtype != _FLOAT32 or local.shape != self._shape or not local.flags.c_contiguous:
            msg = (
                f"worker {self.worker}: local has shape {local.shape}, dtype {local.dtype}; expected a contiguous"
                f" float32 vector of n_params={self.n_params}"
            )
            raise ProtocolError(msg)

    def report(
        self, started: float, sequence: int, staleness: int, overlaps: int, distance: float | None, transport: str
    ) -> ExchangeReport:
        """Build the report of an exchange that began at ``started``."""
        seconds = time.perf_counter() - started
        return ExchangeReport(
            sequence, seconds, self.bytes_up, self.bytes_down, staleness, overlaps, distance, transport
        )


def _meet_statistics(server: ServerConnection, plan: _Plan, local: Vector, new_local: Vector, sequence: int) -> None:
    """Have the server average BatchNorm's statistics; they are few, and the server's lock makes them whole."""
    positions = plan.statistics.positions
    packed = local[positions]
    answer = np.empty_like(packed)

    def attempt(connection: Connection, _: bool) -> None:
        frame = Frame(wire.STATISTICS, wire.FLOAT32, plan.worker, 0, sequence, 0, len(packed))
        connection.send(frame, wire.number_bytes(packed))
        found = _expect(connection, wire.STATISTICS)
        if found.dtype != wire.FLOAT32 or found.count != len(answer):
            msg = f"{connection.peer} answered with {found.count} statistics; expected {len(answer)}"
            raise ProtocolError(msg)
        connection.receive_into(wire.number_bytes(answer), "statistics")

    server.repeat(attempt)
    new_local[positions] = answer


def _await_round(server: ServerConnection, plan: _Plan, sequence: int, note: RoundNote | None) -> None:
    """Wait until every worker that has steps has pushed; the server asks for a sign of life now and then."""
    request = {"call": "round", "sequence": sequence, "note": note}
    while not server.call(request, worker=plan.worker):
        logger.debug("worker %d waits for the others in exchange %d", plan.worker, sequence)


class _SharedMemoryTransfer:
    """Vectors by a mapped center: this process does worker's and server's side of each chunk itself."""

    def __init__(self, plan: _Plan, server: ServerConnection, center: Center, record: WorkerRecord | None) -> None:
        self._record = record
        self._turns: TurnLocks | None = None
        if record is not None and center.locks is not None:
            center.locks = self._turns = TurnLocks(center.locks, center.turns)
        self._plan = plan
        self._server = server
        self._center = center
        self._push = aligned_vector(plan.chunk)

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._plan.moving_rate = moving_rate

    def pull(self) -> Vector:
        """Copy the center and go on from it."""
        self._center.pulled(self._plan.worker)
        if self._record is not None and self._turns is not None:
            return self._recorded_pull(self._record, self._turns)
        return self.look(as_start=True)

    def _recorded_pull(self, record: WorkerRecord, turns: TurnLocks) -> Vector:
        vector, spans = self._plan.vectors.take(), self._plan.chunks.spans
        with turns.whole():
            for position in self._plan.order:
                with turns.chunk(position):
                    vector[spans[position]] = self._center.vector[spans[position]]
        record.pulled(turns.taken())
        self._plan.began_with(vector)
        return vector

    def look(self, *, as_start: bool) -> Vector:
        """Copy the center."""
        vector = self._plan.vectors.take()
        np.copyto(vector, self._center.vector)
        if as_start:
            self._plan.began_with(vector)
        return vector

    def exchange(
        self, local: Vector, measure: bool, note: RoundNote | None, lock: threading.Lock
    ) -> tuple[Vector, ExchangeReport]:
        """Meet the center chunk by chunk; ``lock`` guards the socket, which only statistics need."""
        started = time.perf_counter()
        plan, center = self._plan, self._center
        plan.check(local)
        if plan.lacks_start:
            self.pull()
        ticket = center.begin(plan.worker)
        terms = ticket.terms(plan.n_workers, plan.moving_rate)
        new_local = plan.vectors.take()
        distance = meet_in_memory(
            center,
            plan.chunks,
            plan.worker,
            plan.order,
            terms,
            local,
            new_local,
            local if plan.start is None else plan.start,
            self._push,
            measure_distance=measure,
        )
        if self._record is not None and self._turns is not None:
            self._record.exchanged(ticket.staleness, ticket.total, self._turns.taken())
        if plan.strategy.pulls == "after_round":
            with lock:
                _await_round(self._server, plan, ticket.sequence, note)
            np.copyto(new_local, center.result(plan.strategy))
        if plan.chunks.held is not None:
            with lock:
                _meet_statistics(self._server, plan, local, new_local, ticket.sequence)
        plan.began_with(new_local)
        overlaps = center.end(plan.worker, ticket, plan.bytes_up + plan.bytes_down)
        return new_local, plan.report(started, ticket.sequence, ticket.staleness, overlaps, distance, "shm")

    def close(self) -> None:
        """Unmap."""
        self._center.close()


class _SocketTransfer:
    """Vectors by socket, from and to every server at the same time, each with its key range."""

    def __init__(self, plan: _Plan, servers: Sequence[ServerConnection], sequence: int) -> None:
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
        if plan.strategy.pulls == "after_round":
            _await_round(self._shares[0].server, plan, sequence, note)
            overlaps = self._each(lambda share: share.pull_and_end(meetings[share.index]))
        if plan.chunks.held is not None:
            _meet_statistics(self._shares[0].server, plan, local, new_local, sequence)
        self._sequence = sequence
        for share in self._shares:
            share.pushes.exchanged()
        plan.began_with(new_local)
        squares = sum(sum(meeting.squares.values()) for meeting in meetings)
        staleness = max(meeting.terms.staleness for meeting in meetings)
        distance = squares**0.5 if measure else None
        return new_local, plan.report(started, sequence, staleness, max(overlaps), distance, "socket")

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

    def __init__(self, plan: _Plan, server: ServerConnection, index: int, n_servers: int) -> None:
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
        self, plan: _Plan, share: _Share, sequence: int, local: Vector, new_local: Vector, measure: bool
    ) -> None:
        self.terms = Terms(plan.n_workers, plan.moving_rate)
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
        plan.strategy.worker_chunk(local, center, new_local, push, self._start[span], self.terms)
        plan.chunks.hold_statistics(position, push)
        return pushes.pack(slot, span, push, new_local)


class _Stream:
    """Frames of one exchange, both directions at once, in one thread: whoever would wait for the other moves first.

    The server's thread sends and receives in turn, so a client that only sent would stop it, and itself, for good.
    """

    def __init__(self, connection: Connection, plan: _Plan, share: _Share, sequence: int) -> None:
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
            meeting.terms = Terms(
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
