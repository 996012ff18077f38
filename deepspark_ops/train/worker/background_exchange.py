"""An exchange that runs while the worker computes on: elastic strategies allow it, at the price of staleness."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from deepspark_ops.exchange.center.buffers import VectorPool
from deepspark_ops.exchange.transport.link import ExchangeReport, WorkerLink
from deepspark_ops.param_vector import StatisticBlobs, Vector


class BackgroundExchange:
    """One exchange at a time, in a thread of its own. ``start`` and ``finish`` in turn, by one thread.

    The elastic difference ``e`` is that of the parameters given to ``start``. What the worker has computed since then
    is kept: ``finish`` gives ``local - e`` of the parameters as they are by then, so the sum of worker and center is
    kept as by an exchange that the worker waits for. Of BatchNorm's statistics, which the center gathers, those of the
    steps since then are left.
    """

    def __init__(self, link: WorkerLink, statistics: StatisticBlobs) -> None:
        """Use ``link``, whose other calls stay the caller's."""
        self._link = link
        self._statistics = statistics
        self._handed_over = np.empty(0, np.float32)
        self._thread = ThreadPoolExecutor(1, "exchange")
        self._running: Future[tuple[Vector, ExchangeReport]] | None = None
        self._vectors: VectorPool | None = None
        self._last_staleness = 0

    def start(self, read_local: Callable[[], Vector], *, measure_distance: bool) -> None:
        """Begin to exchange what ``read_local`` returns, shape (n_params,); it must stay as it is until ``finish``.

        The thread calls it: where it copies from a device, the worker computes on meanwhile.
        """
        assert self._running is None, "finish comes before the next start"
        self._running = self._thread.submit(self._exchange, read_local, measure_distance)

    def finish(self, local: Vector) -> tuple[Vector, ExchangeReport]:
        """Wait for the exchange and return ``local``, what it has become since, with the exchange applied: fresh.

        Raises:
            ExchangeUnavailable, ProtocolError: As the link's exchange.
        """
        assert self._running is not None, "start comes first"
        running, self._running = self._running, None
        correction, report = running.result()
        np.add(local, correction, out=correction)
        positions = self._statistics.positions
        correction[positions] = self._statistics.since(local[positions], self._handed_over)
        # The steps made meanwhile know the center as it was one exchange earlier.
        staleness = report.staleness + self._last_staleness
        self._last_staleness = report.staleness
        return correction, report._replace(staleness=staleness)

    def close(self) -> None:
        """Wait for what runs and end the thread."""
        self._thread.shutdown()

    def _exchange(self, read_local: Callable[[], Vector], measure_distance: bool) -> tuple[Vector, ExchangeReport]:
        """Return what is to be added to the worker's parameters, -e, in a vector of the caller's own."""
        local = read_local()
        new_local, report = self._link.exchange(local, measure_distance=measure_distance)
        if self._vectors is None:
            self._vectors = VectorPool(len(local))
        correction = self._vectors.take()
        np.subtract(new_local, local, out=correction)
        self._handed_over = local[self._statistics.positions]
        return correction, report
