"""Lost updates during a run: the change of a chunk of the center against the sum of the pushes into the chunk.

Without locks, overlapping pushes may lose a part of each other. Strategies with ``pushes_add_up`` are
checked on one chunk at a time, and the chunk changes after each finding. Every worker adds up its pushes of the chunk
in float64, and ``LostUpdates`` compares the growth of these sums with the growth of the center::

    deviation = sum(center) - sum(center before) - sum(applied pushes)
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.worker_counters import (
    BEGUN,
    COLUMNS,
    ENDED,
    WATCH_BEGUN,
    WATCH_ENDED,
    WATCH_SIZE,
    WATCH_SUM,
)

ROUNDING_SIGMAS = 16.0
"""Each addition to a float32 has an evenly spread error of at most half of the last digit. Rounding cannot explain a
deviation of so many standard deviations of the summed errors."""
READ_TRIES = 30
READ_PAUSE_S = 0.5e-3


@dataclass(frozen=True)
class ChunkFinding:
    """The measurement of a chunk.

    Attributes:
        position: The chunk.
        pushes: Pushes in the time.
        deviation: See the module; in the parameters' unit.
        rounding: What float32 rounding may come to.
        pushed: Sum over the pushes of their size, the absolute value of each one's sum.
    """

    position: int
    pushes: int
    deviation: float
    rounding: float
    pushed: float

    @property
    def lost_updates(self) -> float:
        """The share of the pushed sum that is missing (or was added twice); 0 within rounding."""
        if abs(self.deviation) <= self.rounding or self.pushed == 0.0:
            return 0.0
        return abs(self.deviation) / self.pushed


@dataclass(frozen=True)
class _Reading:
    """Sums of a chunk and of the chunk's pushes at the same moment."""

    pushes: int
    center: float
    pushed: float
    size: float
    rounding_variance: float


class LostUpdates:
    """Measures lost updates on a center's chunks in turn. Not thread-safe; never stops a worker.

    The watch of a chunk begins when all exchanges are over that began before the choice of the chunk.
    """

    def __init__(self, center: Center, chunks: Chunks, *, rest_steps: int = 0) -> None:
        """Choose the first chunk: after a rest, or at once where no exchange is open.

        Args:
            center: The watched center.
            chunks: The center's chunks.
            rest_steps: Calls of ``step`` without a watch before each chunk: adding up pushes takes an exchange of a
                small net 3 % longer, so it is done for a part of the time only.
        """
        self._rest_steps = self._rest_left = rest_steps
        self._center = center
        self._chunks = chunks
        self._is_on = chunks.strategy.pushes_add_up
        self._position = -1
        self._open_at_choice: list[int] | None = None
        self._first_reading: _Reading | None = None
        if self._is_on and not rest_steps:
            self._choose_next()
            self.step()
            self.step()

    def step(self) -> None:
        """Take the next step towards a watch; to be called now and then."""
        if not self._is_on or self._first_reading is not None:
            return
        if self._rest_left:
            self._rest_left -= 1
            if self._rest_left == 0:
                self._choose_next()
            return
        counters = self._counters()
        if self._open_at_choice is None:
            # Not at the choice: an exchange that began at the same moment must be visible by now.
            self._open_at_choice = counters[:, BEGUN].tolist()
            return
        ended, begun = counters[:, ENDED].tolist(), counters[:, BEGUN].tolist()
        if all(e >= o or e == b for e, o, b in zip(ended, self._open_at_choice, begun, strict=True)):
            self._first_reading = self._read()

    def finding(self) -> ChunkFinding | None:
        """Return the measurement of the present chunk, and choose the next chunk; None without a result yet."""
        first = self._first_reading
        now = self._read() if first is not None else None
        if first is None or now is None or now.pushes == first.pushes:
            return None
        pushes = now.pushes - first.pushes
        deviation = now.center - first.center - (now.pushed - first.pushed)
        rounding = ROUNDING_SIGMAS * math.sqrt(pushes * max(first.rounding_variance, now.rounding_variance))
        finding = ChunkFinding(self._position, pushes, deviation, rounding, now.size - first.size)
        self._first_reading = None
        self._rest_left = self._rest_steps
        if self._rest_left:
            self._center.watch(-1)
        else:
            self._choose_next()
        return finding

    def _counters(self) -> npt.NDArray[np.uint64]:
        """Counters of every worker at every server, shape (n_servers * n_workers, columns)."""
        return self._center.all_counters.reshape(-1, COLUMNS)

    def _choose_next(self) -> None:
        self._position = (self._position + 1) % len(self._chunks.ranges)
        self._open_at_choice = self._first_reading = None
        self._center.watch(self._position)

    def _read(self) -> _Reading | None:
        """Read chunk and sums while no push to the chunk is being applied; None without such a moment."""
        counters = self._counters()
        for _ in range(READ_TRIES):
            begun = counters[:, WATCH_BEGUN].copy()
            if np.array_equal(begun, counters[:, WATCH_ENDED]):
                sums = counters.view(np.float64)[:, (WATCH_SUM, WATCH_SIZE)].sum(axis=0)
                center, variance = self._sum_of_center()
                if np.array_equal(begun, counters[:, WATCH_BEGUN]):
                    return _Reading(int(begun.sum()), center, float(sums[0]), float(sums[1]), variance)
            time.sleep(READ_PAUSE_S)
        return None

    def _sum_of_center(self) -> tuple[float, float]:
        """Return the sum of the watched part without statistics, and the variance of rounding in one push."""
        start, stop = self._chunks.ranges[self._position]
        part = self._center.vector[start : min(stop, start + self._chunks.watch_floats)].astype(np.float64)
        if self._chunks.statistics is not None:
            positions = self._chunks.statistics[self._position]
            part[positions[positions < len(part)]] = 0.0
        spacing = np.spacing(np.abs(part).astype(np.float32)).astype(np.float64)
        return float(part.sum()), float(np.dot(spacing, spacing)) / 12.0
