"""BatchNorm's statistics at the center: averaged with each worker's in turn, once per exchange of a session."""

from __future__ import annotations

import threading

import numpy as np

from deepspark_ops.errors import PushRefused
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.param_vector import StatisticBlobs, Vector


class StatisticsExchange:
    """Averages packed statistics with the center's. Thread-safe: they are few, and one lock makes each average whole.

    The last answer of each worker is kept, so that a repeated request changes nothing; it belongs to one session, since
    a process that takes another's place begins with the number of the exchange that its predecessor left open.
    """

    def __init__(self, center: Center, blobs: StatisticBlobs, n_workers: int) -> None:
        """Average in ``center``, which stays the caller's."""
        self._center = center
        self._blobs = blobs
        self._n_workers = n_workers
        self._lock = threading.Lock()
        self._answers: dict[int, tuple[str, int, Vector]] = {}

    def exchange(self, worker: int, session: str, sequence: int, local: Vector) -> Vector:
        """Return the worker's new statistics; see ``StatisticBlobs.average``.

        Args:
            worker: Who.
            session: Its process.
            sequence: Number of the exchange; the same one of the same session gets the same answer.
            local: Its own, packed, (n_values,); only read.

        Raises:
            PushRefused: They are not finite.
        """
        if self._center.push_check is not None and not np.isfinite(local).all():
            not_finite = PushRefused("some are not finite")
            raise self._center.refuse_push(worker, "BatchNorm's statistics", not_finite)
        positions = self._blobs.positions
        with self._lock:
            known_session, known_sequence, answer = self._answers.get(worker, ("", 0, local))
            if (known_session, known_sequence) == (session, sequence):
                return answer
            new_center, answer = self._blobs.average(self._center.vector[positions], local, self._n_workers)
            self._center.vector[positions] = new_center
            self._answers[worker] = (session, sequence, answer)
        return answer
