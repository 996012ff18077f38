"""BatchNorm's statistics at the center: the server adds the statistics of each worker's exchange, once."""

from __future__ import annotations

import threading

import numpy as np

from deepspark_ops.errors import PushRefused
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.param_vector import StatisticBlobs, Vector


class StatisticsExchange:
    """Adds workers' packed statistics to the center's. Thread-safe: for few values one lock is fast enough.

    The object keeps session and number of each worker's last exchange, so that a repeated request changes nothing. A
    new process of the worker may use the number of the old process's open exchange again.
    """

    def __init__(self, center: Center, blobs: StatisticBlobs) -> None:
        """Gather in ``center``; the caller keeps ``center``."""
        self._center = center
        self._blobs = blobs
        self._lock = threading.Lock()
        self._last: dict[int, tuple[str, int]] = {}

    def add(self, worker: int, session: str, sequence: int, sums: Vector) -> None:
        """Add a worker's sums; see ``StatisticBlobs.gathered``.

        Args:
            worker: Sender of the sums.
            session: The worker's process.
            sequence: Number of the exchange; a repeated number of a session adds nothing.
            sums: The worker's sums since the last hand-over, packed, (n_values,); only read.

        Raises:
            PushRefused: Some sums are not finite.
        """
        if self._center.push_check is not None and not np.isfinite(sums).all():
            not_finite = PushRefused("some are not finite")
            raise self._center.refuse_push(worker, "BatchNorm's statistics", not_finite)
        positions = self._blobs.positions
        with self._lock:
            if self._last.get(worker) == (session, sequence):
                return
            self._center.vector[positions] = self._blobs.gathered(self._center.vector[positions], sums)
            self._last[worker] = (session, sequence)
