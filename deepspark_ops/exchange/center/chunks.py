"""A vector in chunks."""

from __future__ import annotations

from collections.abc import Sequence

from deepspark_ops.exchange.strategies.base import SINGLE_WORKER, Strategy
from deepspark_ops.param_vector import StatisticBlobs, Vector, chunk_ranges

MIN_WATCH_FLOATS = 2_048


class Chunks:
    """A strategy's chunks of a vector: ranges in a worker's order, and the statistics inside each chunk.

    Attributes:
        statistics: Positions of BatchNorm's statistics in each chunk, relative to its start. They are gathered in a way
            of their own: in a push they are zero, which changes nothing. None where there are none, and with a single
            worker, whose statistics are copied like its weights.
        watch_floats: Length of the watched part of a chunk, from its start: adding it up must cost next to nothing.
    """

    def __init__(self, n_params: int, chunk: int, strategy: Strategy, statistics: StatisticBlobs) -> None:
        """Cut the vector."""
        self.ranges = chunk_ranges(n_params, chunk)
        self.spans = tuple(slice(*span) for span in self.ranges)
        self.strategy = strategy
        gathered = statistics if strategy.name != SINGLE_WORKER else StatisticBlobs()
        self.statistics = tuple(gathered.within(*span) for span in self.ranges) if gathered.layers else None
        self.watch_floats = max(MIN_WATCH_FLOATS, n_params // 200)
        self._views: tuple[Vector, tuple[Vector, ...]] | None = None

    def order(self, worker: int, n_workers: int, server: int = 0, n_servers: int = 1) -> Sequence[int]:
        """Return the positions of a server's chunks in a worker's order.

        Workers start with different chunks, and rarely write the same chunk at the same time.
        """
        begin, end = (k * len(self.ranges) // n_servers for k in (server, server + 1))
        first = begin + worker * (end - begin) // n_workers
        return (*range(first, end), *range(begin, first))

    def views(self, vector: Vector) -> tuple[Vector, ...]:
        """Return the chunks of a vector as views; the views of the last vector are cached for a center."""
        if self._views is None or self._views[0] is not vector:
            self._views = (vector, tuple([vector[span] for span in self.spans]))
        return self._views[1]

    def clear_statistics(self, position: int, push: Vector) -> None:
        """Take the statistics of one chunk out of a push."""
        if self.statistics is not None and len(self.statistics[position]):
            push[self.statistics[position]] = 0.0
