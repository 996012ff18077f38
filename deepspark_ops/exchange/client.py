"""A worker's side of the exchange over a socket or, on the server's host, over shared memory.

A worker loop needs only a ``WorkerLink``; ``connect`` returns a link. This file imports no framework.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.events import DRIVER, Event
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.host_center import HostCenter
from deepspark_ops.exchange.center.memory import SHARED_MEMORY, CenterShape
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.messages import Request
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.connection import (
    ExchangeAddress,
    ServerConnection,
    call_once,
    expect_json,
)
from deepspark_ops.exchange.transport.exchange import Transfer, exchange, look, pull
from deepspark_ops.exchange.transport.link import ExchangeReport, StateRequests, Welcome, WorkerLink
from deepspark_ops.exchange.transport.memory_transfer import MemoryTransfer
from deepspark_ops.exchange.transport.run_description import RunDescription
from deepspark_ops.exchange.transport.server_calls import SocketCalls
from deepspark_ops.exchange.transport.socket_transfer import SocketTransfer
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.exchange.transport.tree_transfer import TreeTransfer
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import Vector

_Answer = TypeVar("_Answer")


def connect(address: ExchangeAddress, *, confirms_later: bool = False) -> WorkerLink:
    """Return a link to a running exchange; ``join`` makes the connection. See ``SocketLink``."""
    return SocketLink(address, confirms_later=confirms_later)


class SocketLink(StateRequests):
    """A ``WorkerLink`` to a server: control by socket, vectors by shared memory or by the same socket.

    The link uses shared memory if the server's file can be opened here and has the announced token; a file of this name
    in a container or on another host has another token. A lock serves all calls. An exchange by socket holds the
    lock, and a thread that wants a lease waits; an exchange in shared memory holds the lock only for its requests to
    the server. In a tree of centers, workers on other hosts than the server's exchange with the center of their host.

    With ``confirms_later`` an exchange or an event returns before the server's last answer, and the worker computes
    while the answer travels. The next call of the link waits for the answer, and after a broken connection sends again
    what the server has not applied. So the call after an exchange, e.g. its acknowledgement, proves that the exchange
    is in the center.
    """

    def __init__(
        self, address: ExchangeAddress, shared_memory: Path = SHARED_MEMORY, *, confirms_later: bool = False
    ) -> None:
        """Connect at ``join``; ``shared_memory`` has the center of this host in a tree of centers."""
        self._address = address
        self._shared_memory = shared_memory
        self._host: HostCenter | None = None
        self._server = ServerConnection(address, "worker", confirms_later=confirms_later)
        self._session = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._requests = 0
        self._worker = DRIVER
        self._transfer: Transfer | None = None
        self._vectors_lock: AbstractContextManager[object] = nullcontext()

    def join(self, worker: int) -> Welcome:
        """See ``WorkerLink``."""
        with self._lock:
            self._server.caller = f"worker {worker}"
            run = RunDescription.from_json(self._server.call({"call": "describe"}))
            self._server.limit_bytes = max(4 * run.chunk, 4 * run.statistics.n_values)
            self._server.close()
            center = self._open_center(run)
            has_tree = center is None and run.strategy().root_level is not None
            transport = "tree" if has_tree else "socket" if center is None else "shm"
            request = {"call": "join", "worker": worker, "session": self._session, "transport": transport}
            joined = self._server.call(request, worker=worker)
            self._worker = worker
            self._server.introduce_with(self._attach_first)
            calls = SocketCalls(self._server, worker, self._lock)
            if center is not None:
                self._transfer = MemoryTransfer("shm", TransferPlan(run, worker), center, self._session, calls)
                return run.welcome(joined["clock"], transport)
            servers = [self._server, *(self._further_server(port) for port in self._address.more_ports)]
            root = SocketTransfer(TransferPlan(run, worker, run.wire_dtype), servers, joined["sequence"])
            if has_tree:
                host = self._host = self._open_host_center(run, root)
                plan = TransferPlan(run, worker)
                self._transfer = TreeTransfer(plan, host, self._session, calls, root, self._lock)
            else:
                self._transfer, self._vectors_lock = root, self._lock
        return run.welcome(joined["clock"], transport)

    def pull(self) -> Vector:
        """See ``WorkerLink``."""
        transfer = self._joined()
        with self._vectors_lock:
            return pull(transfer)

    def look(self, *, as_start: bool = False) -> Vector:
        """See ``WorkerLink``."""
        transfer = self._joined()
        with self._vectors_lock:
            return look(transfer, as_start=as_start)

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """See ``WorkerLink``."""
        transfer = self._joined()
        with self._vectors_lock:
            return exchange(transfer, local, measure_distance=measure_distance, note=note)

    def use_moving_rate(self, moving_rate: float) -> None:
        """See ``WorkerLink``."""
        self._joined().use_moving_rate(moving_rate)

    def report_center(self) -> None:
        """See ``WorkerLink``."""
        self._joined().plan.reports_center = True

    def send_event(self, event: Event) -> None:
        """See ``WorkerLink``."""
        self._joined()
        with self._lock:
            self._server.send_call({"call": "event", "line": event.to_json()}, worker=self._worker)

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

        self._joined().flush(self._address.exchange_timeout_s)
        with self._lock:
            self._server.repeat(attempt)

    def heartbeat(self) -> None:
        """See ``WorkerLink``."""
        self._call({"call": "heartbeat"})

    def leave(self) -> None:
        """See ``WorkerLink``."""
        self._joined().flush(self._address.exchange_timeout_s)
        self._call({"call": "leave"})

    def close(self) -> None:
        """See ``WorkerLink``."""
        with self._lock:
            self._server.close()
            if self._transfer is not None:
                self._transfer.close()
            if self._host is not None:
                self._host.exit(self._worker)
                self._host.close()
            self._transfer = self._host = None

    def _further_server(self, port: int) -> ServerConnection:
        """Return a connection that confirms at once: answers of the first server prove nothing of another server."""
        server = ServerConnection(replace(self._address, port=port), self._server.caller)
        server.limit_bytes = self._server.limit_bytes
        server.introduce_with(self._attach)
        return server

    def _open_center(self, run: RunDescription) -> Center | None:
        if "socket" in (self._address.transport, run.transport):
            return None
        try:
            center = Center.open(Path(run.center_path), bytes.fromhex(run.center_token), server=None)
        except (OSError, ProtocolError) as error:
            if "shm" in (self._address.transport, run.transport):
                msg = f"transport=shm: the center cannot be mapped here ({error}); use transport=auto"
                raise ConfigError(msg) from error
            return None
        self._prepare(center, run)
        return center

    def _open_host_center(self, run: RunDescription, root: SocketTransfer) -> HostCenter:
        shape = CenterShape(run.n_params, run.n_workers, len(root.plan.chunks.ranges))
        copy_root = partial(root.copy_center, as_start=True)
        host = HostCenter.open(self._shared_memory, shape, self._address.run_id, copy_root)
        self._prepare(host.center, run)
        host.enter(self._worker, self._session)
        self._server.call(self._host_call(host), worker=self._worker)
        return host

    def _prepare(self, center: Center, run: RunDescription) -> None:
        center.use_locks(run.lock, self._address.exchange_timeout_s)
        if run.check_pushes:
            center.check_pushes(run.strategy(), samples=True)

    def _host_call(self, host: HostCenter) -> dict[str, str]:
        return {"call": "host", "token": host.center.token.hex()}

    def _attach(self, connection: Connection) -> None:
        call_once(connection, {"call": "attach", "worker": self._worker, "session": self._session}, self._worker, 0)

    def _attach_first(self, connection: Connection) -> None:
        """Attach to the first server; a server that was restarted does not know the host any more."""
        self._attach(connection)
        if self._host is not None:
            call_once(connection, self._host_call(self._host), self._worker, 0)

    def _ask(self, request: Request[_Answer]) -> _Answer:
        self._joined()
        with self._lock:
            self._requests += 1
            request = request.numbered(self._worker, self._requests)
            return request.answer_from_json(self._server.call(request.to_json(), worker=self._worker))

    def _call(self, request: Mapping[str, Any]) -> Any:
        self._joined()
        with self._lock:
            return self._server.call(request, worker=self._worker)

    def _joined(self) -> Transfer:
        if self._transfer is None:
            msg = "join(worker) comes before any other call of a link"
            raise ProtocolError(msg)
        return self._transfer
