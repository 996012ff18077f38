"""An exchange in the background of a worker's steps: elastic strategies allow this, at the price of staleness."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future

import numpy as np

from deepspark_ops.exchange.center.buffers import VectorPool
from deepspark_ops.exchange.transport.link import ExchangeReport, WorkerLink
from deepspark_ops.param_vector import StatisticBlobs, Vector


class BackgroundExchange:
    """Runs an exchange at a time in a background thread. Another thread calls ``start`` and ``finish`` in turn.

    The elastic difference ``e`` comes from the parameters at ``start``. The steps since then stay: ``finish`` returns
    ``local - e`` of the present parameters. So the sum of worker and center is kept, as by an exchange in the
    foreground. The center has gathered BatchNorm's statistics up to ``start``; the later steps' statistics stay with
    the worker.
    """

    def __init__(self, link: WorkerLink, statistics: StatisticBlobs, thread: Executor) -> None:
        """Use ``link``, whose other calls stay the caller's, on a thread that ``close`` ends."""
        self._link = link
        self._statistics = statistics
        self._handed_over = np.empty(0, np.float32)
        self._thread = thread
        self._running: Future[tuple[Vector, ExchangeReport]] | None = None
        self._vectors: VectorPool | None = None
        self._last_staleness = 0

    def start(self, read_local: Callable[[], Vector], *, measure_distance: bool) -> None:
        """Begin to exchange the result of ``read_local``, shape (n_params,), which must not change until ``finish``.

        The background thread calls ``read_local``: during a copy from a device the worker computes on.
        """
        assert self._running is None, "finish comes before the next start"
        self._running = self._thread.submit(self._exchange, read_local, measure_distance)

    def finish(self, local: Vector) -> tuple[Vector, ExchangeReport]:
        """Wait for the exchange and return the present ``local`` with the exchange applied, in a fresh vector.

        Raises:
            ExchangeUnavailable, ProtocolError: As the link's exchange.
        """
        assert self._running is not None, "start comes first"
        running, self._running = self._running, None
        correction, report = running.result()
        np.add(local, correction, out=correction)
        positions = self._statistics.positions
        correction[positions] = self._statistics.since(local[positions], self._handed_over)
        # The steps made meanwhile know the center of the exchange before.
        staleness = report.staleness + self._last_staleness
        self._last_staleness = report.staleness
        return correction, report._replace(staleness=staleness)

    def close(self) -> None:
        """Wait for a running exchange and end the thread."""
        self._thread.shutdown()

    def _exchange(self, read_local: Callable[[], Vector], measure_distance: bool) -> tuple[Vector, ExchangeReport]:
        """Return -e, the correction of the worker's parameters, in a vector for the caller."""
        local = read_local()
        new_local, report = self._link.exchange(local, measure_distance=measure_distance)
        if self._vectors is None:
            self._vectors = VectorPool(len(local))
        correction = self._vectors.take()
        np.subtract(new_local, local, out=correction)
        self._handed_over = local[self._statistics.positions]
        return correction, report
