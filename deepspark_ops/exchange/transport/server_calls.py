"""The calls of an exchange to the first server by socket, for vectors by socket and in shared memory."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.connection import ServerConnection, expect_frame
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import Vector

logger = logging.getLogger(__name__)


class SocketCalls:
    """``ServerCalls`` of one worker by socket."""

    def __init__(self, server: ServerConnection, worker: int, lock: AbstractContextManager[object]) -> None:
        """Use a connection to the first server, with ``lock`` held."""
        self._server = server
        self._worker = worker
        self._lock = lock

    def await_round(self, sequence: int, note: RoundNote | None) -> int:
        """See ``ServerCalls``; the server answers now and then, so that the worker notices a silent server."""
        request = {"call": "round", "sequence": sequence, "note": note}
        with self._lock:
            while (comm_period := self._server.call(request, worker=self._worker)) is None:
                logger.debug("worker %d waits for the others in exchange %d", self._worker, sequence)
        return int(comm_period)

    def add_statistics(self, sequence: int, sums: Vector) -> None:
        """See ``ServerCalls``."""

        def send(connection: Connection) -> None:
            frame = Frame(wire.STATISTICS, wire.FLOAT32, self._worker, 0, sequence, 0, len(sums))
            connection.send(frame, wire.number_bytes(sums))

        with self._lock:
            self._server.send(send, lambda connection: expect_frame(connection, wire.STATISTICS))
