"""The center's velocity, as a worker sees it at its exchanges. Pure arithmetic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepspark_ops.param_vector import CHUNK_FLOATS, StatisticBlobs, Vector, chunk_ranges

LEAST_FALL = 0.01
"""A rate that falls by less from one step of a worker to the next leaves momentum as it is: with momentum 0.9 the last
ten steps make it up, and theirs were nearly the same."""


class Velocity(NamedTuple):
    """``factor * (before - center)``: what a step of a worker would subtract. Worked out where it is used, by chunks.

    Attributes:
        before: The center at the exchange before, (n_params,), float32.
        center: As the last exchange left it, likewise.
        factor: Above 0.
    """

    before: Vector
    center: Vector
    factor: float


class CenterVelocity:
    """Tells the center's movement from one exchange to the next, as what a step of a worker would subtract.

    Workers that average parameters and not momentum pull at each other: each goes on where its own minibatches have
    sent it, ten steps long with momentum 0.9, and is brought back. Taking part of the momentum from the center damps
    that. With p workers in turn, tau 1 and moving rate 0.3, on a slope of one curvature (the eigenvalues of
    ``test_center_velocity.py``), a share of one half lets the rate be 1.3 (p = 4) to 1.7 times (p = 8) as large, as
    large as one worker bears, and leaves the mean's progress as it is.

    Used by one thread.
    """

    def __init__(self, n_workers: int, center_weight: float = 1.0) -> None:
        """Take the run's p, and what its center weighs by a worker."""
        self._n_workers = n_workers
        self._center_weight = center_weight
        self._center: Vector | None = None
        self._clock = 0
        self._fall = 1.0

    def observe(self, center: Vector, clock: int, n_steps: int) -> Velocity | None:
        """Return the velocity since the last call; None at the first, or where the clock stood still.

        With q workers and a center of weight m a minibatch moves it by 1/(q + m) of a step. Of the p workers some may
        be gone: then q is how many this one's share of the clock tells of. Taken too large, the velocity would feed
        itself.

        Args:
            center: As the exchange left it, (n_params,), float32; kept, not written.
            clock: Where the steps end that it exchanged.
            n_steps: This worker's steps since the last call, at least 1.
        """
        before, elapsed, fall = self._center, clock - self._clock, self._fall
        self._center, self._clock, self._fall = center, clock, 1.0
        if before is None or elapsed <= 0:
            return None
        live = min(self._n_workers, elapsed / n_steps)
        return Velocity(before, center, fall * (live + self._center_weight) / elapsed)

    def slow_down(self, fall: float) -> None:
        """Have the center's movement since the last ``observe`` count by ``fall``, in [0, 1): the rate fell so far."""
        self._fall *= fall


def fall_of_rate(before: float, rate: float) -> float:
    """Return by what momentum is to be multiplied where the rate of a worker's steps has changed, in [0, 1].

    A solver's history is in steps of the rate they were made with. After a drop steps of the large rate go on, and the
    force that would turn them has become small: with eight workers of cifar10_quick accuracy first falls by two points.
    Scaled with the rate they do not go on. A rate that grows leaves momentum as it is.

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv 1706.02677, remark 2 (momentum correction).

    Args:
        before: Rate of the step before, at least 0.
        rate: Of the step that follows.

    Example:
        >>> [fall_of_rate(1.0, rate) for rate in (0.25, 0.995, 2.0)]
        [0.25, 1.0, 1.0]
    """
    return rate / before if rate < (1.0 - LEAST_FALL) * before else 1.0


def mixed_history(history: Vector, velocity: Velocity, share: float, statistics: StatisticBlobs) -> Vector:
    """Return a history with ``share`` of it replaced by a velocity, fresh; zero for statistics, as Caffe has it.

    Args:
        history: Of SGD or Nesterov, (1, n_params): what a step subtracts; not written.
        velocity: The same of the center; not written.
        share: In [0, 1].
        statistics: BatchNorm's blobs.
    """
    mixed = np.empty_like(history)
    of_center = np.empty(min(CHUNK_FLOATS, mixed.size), np.float32)
    kept, taken = np.float32(1.0 - share), np.float32(share * velocity.factor)
    for start, stop in chunk_ranges(mixed.size):
        part = of_center[: stop - start]
        np.subtract(velocity.before[start:stop], velocity.center[start:stop], out=part)
        part *= taken
        np.multiply(history[0, start:stop], kept, out=mixed[0, start:stop])
        mixed[0, start:stop] += part
    mixed[0, statistics.positions] = 0.0
    return mixed
