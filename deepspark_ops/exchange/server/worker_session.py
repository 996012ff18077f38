"""A connection to the server with the run state, from the first frame to the last."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepspark_ops.errors import ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.center.worker_counters import ENDED
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.server.coordinator import Coordinator
from deepspark_ops.exchange.server.vector_session import VectorSession, field_of
from deepspark_ops.exchange.state.messages import REQUESTS, Request
from deepspark_ops.exchange.state.state_file import StateFileWriter
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.run_description import RunDescription
from deepspark_ops.exchange.transport.wire import Connection, Frame

if TYPE_CHECKING:
    from deepspark_ops.exchange.server.process import ExchangeServer


class WorkerSession(VectorSession):
    """An authenticated connection of a worker or the driver to the server with the run state."""

    def __init__(self, server: ExchangeServer, connection: Connection, coordinator: Coordinator) -> None:
        """Wait for ``run``; no frame is served before."""
        super().__init__(server, connection)
        self._coordinator = coordinator
        self._calls |= {
            "describe": self._describe,
            "join": self._join,
            **{call: partial(self._answer, kind) for call, kind in REQUESTS.items()},
            "heartbeat": self._heartbeat,
            "host": self._host,
            "event": self._event,
            "round": self._round,
            "state": self._state,
            "leave": self._leave,
            "status": lambda _: coordinator.status(),
            "control": lambda request: coordinator.control(field_of(request, "change", str)),
        }
        self._operations[wire.STATISTICS] = self._statistics

    def _lives(self, worker: int) -> None:
        self._coordinator.heartbeat(worker)

    def _describe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return RunDescription.of(self._server.settings, self._center).to_json()

    def _join(self, request: Mapping[str, Any]) -> dict[str, Any]:
        worker, session = field_of(request, "worker", int), field_of(request, "session", str)
        self._become(worker)
        welcome = self._coordinator.join(worker, session, field_of(request, "transport", str))
        self._take_session(session)
        return {"clock": welcome.clock, "sequence": int(self._center.counters[worker, ENDED])}

    def _answer(self, kind: type[Request[Any]], plain: Mapping[str, Any]) -> Any:
        request = kind.from_json(plain)
        if request.worker != self._member():
            msg = f"{self.connection.peer}: {request.call} in the name of worker {request.worker}"
            raise ProtocolError(msg)
        return request.answer_to_json(self._coordinator.answer(request))

    def _heartbeat(self, request: Mapping[str, Any]) -> None:
        self._coordinator.heartbeat(self._member())

    def _host(self, request: Mapping[str, Any]) -> None:
        self._coordinator.note_host(self._member(), field_of(request, "token", str))

    def _event(self, request: Mapping[str, Any]) -> None:
        self._coordinator.event(self._member(), field_of(request, "line", str))

    def _round(self, request: Mapping[str, Any]) -> int | None:
        # The others push meanwhile: a waiting worker must not hold the lock of the whole center.
        self._unlock_center()
        note = RoundNote.from_json(request.get("note"))
        return self._coordinator.await_round(self._member(), field_of(request, "sequence", int), note)

    def _leave(self, request: Mapping[str, Any]) -> None:
        worker, self.session = self._member(), ""
        self._coordinator.leave(worker)

    def _state(self, request: Mapping[str, Any]) -> bool:
        """Take a worker's arrays: the request lists the arrays, and frames with the bytes follow."""
        worker, iteration = self._member(), field_of(request, "iteration", int)
        meta, arrays = field_of(request, "meta", dict), field_of(request, "arrays", list)
        self._lives(worker)
        snapshots = self._coordinator.snapshots
        path = snapshots.state_path(worker, iteration)
        is_received = path is not None and self._receive_state(path, arrays)
        if path is None:
            self._skip_state(field_of(request, "bytes", int))
        if is_received:
            snapshots.state_received(worker, iteration, meta)
        return is_received

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
        """Gather BatchNorm's statistics; a repeated frame adds nothing."""
        worker, n_values = self._member(), self._server.settings.statistics.n_values
        if frame.dtype != wire.FLOAT32 or frame.count != n_values:
            msg = f"{self.connection.peer}: {frame.count} statistics of dtype {frame.dtype}; the net has {n_values}"
            raise ProtocolError(msg)
        sums = np.empty(n_values, np.float32)
        self.connection.receive_into(wire.number_bytes(sums), "statistics")
        self._coordinator.statistics.add(worker, self.session, frame.sequence, sums)
        self.connection.send(Frame(wire.STATISTICS, wire.FLOAT32, worker, 0, frame.sequence))


def _is_array_entry(entry: Any) -> bool:
    """Return whether a JSON value is (name, dtype, shape)."""
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    name, dtype, shape = entry
    names = isinstance(name, str) and isinstance(dtype, str)
    return names and isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**40 for n in shape)
