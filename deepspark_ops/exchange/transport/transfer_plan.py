"""The plan of a worker's exchanges, for all transports: the run's settings, the chunks, and the worker's start."""

from __future__ import annotations

import numpy as np

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.center.buffers import VectorPool
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.compression import CODES, WireDtype
from deepspark_ops.exchange.transport.run_description import RunDescription
from deepspark_ops.param_vector import Vector

_FLOAT32 = np.dtype(np.float32)


class TransferPlan:
    """The plan of a worker's exchanges. Used by one thread.

    Attributes:
        worker: Id of the worker.
        n_params: Length of the parameter vector.
        n_workers: p.
        moving_rate: alpha, as it is now; 0 for the strategy's default.
        chunk: Floats per chunk.
        strategy: Strategy in use.
        wire_dtype: Number format of pushes.
        statistics: BatchNorm's blobs.
        chunks: The chunks of the vector.
        order: In which this worker goes through them.
        vectors: Source of fresh vectors.
        start: What the worker went on from after its last exchange or pull, if the strategy wants to know.
        reports_center: Whether exchanges report the center; see ``WorkerLink.report_center``.
        center_copy: Receives the center after the worker's push, (n_params,), in an exchange that reports the center.
        bytes_up: Bytes that one exchange pushes.
        bytes_down: Bytes that it pulls.
    """

    def __init__(self, run: RunDescription, worker: int, wire_dtype: WireDtype = "float32") -> None:
        """Plan the exchanges of one worker of ``run``."""
        self.worker = worker
        self.n_params = run.n_params
        self.n_workers = run.n_workers
        self.moving_rate = run.moving_rate
        self.chunk = min(run.chunk, run.n_params)
        self.strategy = run.strategy()
        self.wire_dtype = wire_dtype
        self.statistics = run.statistics
        self.chunks = Chunks(run.n_params, run.chunk, self.strategy, run.statistics)
        self.order = tuple(self.chunks.order(worker, run.n_workers))
        self.vectors = VectorPool(run.n_params)
        self.start: Vector | None = None
        self.reports_center = False
        self.center_copy: Vector | None = None
        self._shape = (run.n_params,)
        self.bytes_up = wire.ITEM_BYTES[CODES[wire_dtype]] * run.n_params
        self.bytes_down = 0 if self.strategy.pulls == "never" else 4 * run.n_params

    def alpha(self, n_workers: int) -> float:
        """Return alpha with ``n_workers`` present workers."""
        return self.moving_rate or self.strategy.default_moving_rate(n_workers)

    def began_with(self, vector: Vector) -> None:
        """Keep the worker's new start, if the strategy needs a start."""
        if self.strategy.keeps_start:
            self.start = vector

    def begin_statistics(self, vector: Vector) -> None:
        """Set BatchNorm's statistics of a worker's fresh parameters to 0, where the center gathers statistics."""
        if self.chunks.statistics is not None:
            vector[self.statistics.positions] = 0.0

    @property
    def lacks_start(self) -> bool:
        """Whether the strategy needs a pull before the first exchange."""
        return self.strategy.keeps_start and self.start is None

    def start_or(self, local: Vector) -> Vector:
        """Return the worker's start, or ``local`` where the strategy needs no start."""
        return local if self.start is None else self.start

    def check(self, local: Vector) -> None:
        """Refuse a vector of another net.

        Raises:
            ProtocolError: Another length, dtype or memory layout.
        """
        if local.dtype != _FLOAT32 or local.shape != self._shape or not local.flags.c_contiguous:
            msg = (
                f"worker {self.worker}: local has shape {local.shape}, dtype {local.dtype}; expected a contiguous"
                f" float32 vector of n_params={self.n_params}"
            )
            raise ProtocolError(msg)
