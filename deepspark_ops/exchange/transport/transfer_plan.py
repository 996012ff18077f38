"""What a worker's two ways of moving vectors share: the run's settings, and what goes by control call."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.center.buffers import VectorPool
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.strategies.base import configure
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.compression import CODES, WireDtype
from deepspark_ops.exchange.transport.connection import ServerConnection, expect_frame
from deepspark_ops.exchange.transport.link import RoundEnd
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import StatisticBlobs, Vector

_FLOAT32 = np.dtype(np.float32)

logger = logging.getLogger(__name__)


class TransferPlan:
    """What the server said of the run: the settings that a worker exchanges by. Used by one thread.

    Attributes:
        worker: Its id.
        n_params: Length of the parameter vector.
        n_workers: p.
        moving_rate: alpha, as it is now.
        chunk: Floats per chunk.
        strategy: What runs.
        wire_dtype: How pushed numbers travel by socket.
        statistics: BatchNorm's blobs.
        chunks: The chunks of the vector.
        order: In which this worker goes through them.
        vectors: Where fresh vectors come from.
        start: What the worker went on from after its last exchange or pull, if the strategy wants to know.
        bytes_up: Bytes that one exchange pushes.
        bytes_down: Bytes that it pulls.
    """

    def __init__(self, found: Mapping[str, Any], statistics: StatisticBlobs, worker: int) -> None:
        """Take what the server's ``describe`` and ``join`` found."""
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


def meet_statistics(
    server: ServerConnection, plan: TransferPlan, local: Vector, new_local: Vector, sequence: int
) -> None:
    """Have the server average BatchNorm's statistics; they are few, and the server's lock makes them whole."""
    positions = plan.statistics.positions
    packed = local[positions]
    answer = np.empty_like(packed)

    def attempt(connection: Connection, _: bool) -> None:
        frame = Frame(wire.STATISTICS, wire.FLOAT32, plan.worker, 0, sequence, 0, len(packed))
        connection.send(frame, wire.number_bytes(packed))
        found = expect_frame(connection, wire.STATISTICS)
        if found.dtype != wire.FLOAT32 or found.count != len(answer):
            msg = f"{connection.peer} answered with {found.count} statistics; expected {len(answer)}"
            raise ProtocolError(msg)
        connection.receive_into(wire.number_bytes(answer), "statistics")

    server.repeat(attempt)
    new_local[positions] = answer


def await_round(server: ServerConnection, plan: TransferPlan, sequence: int, note: RoundNote | None) -> RoundEnd:
    """Wait until every worker that has steps has pushed; the server asks for a sign of life now and then."""
    began = time.perf_counter()
    request = {"call": "round", "sequence": sequence, "note": note}
    while (comm_period := server.call(request, worker=plan.worker)) is None:
        logger.debug("worker %d waits for the others in exchange %d", plan.worker, sequence)
    return RoundEnd(time.perf_counter() - began, comm_period)
