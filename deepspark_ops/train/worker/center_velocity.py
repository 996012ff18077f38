"""The center's velocity, as a worker sees it at its exchanges. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepspark_ops.param_vector import StatisticBlobs, Vector, chunk_ranges

MIXED_CHUNK_FLOATS = 65_536
"""Floats of one chunk of ``mix_history``: its four arrays share a core's L2 cache."""
LEAST_FALL = 0.01
"""A rate that falls by less from one step of a worker to the next leaves momentum as it is: with momentum 0.9 the last
ten steps make it up, and theirs were nearly the same."""


class Velocity(NamedTuple):
    """``factors * (before - center)``: what a step of a worker would subtract. Worked out where it is used, by chunks.

    Attributes:
        before: The center at the exchange before, (n_params,), float32; the receiver may write it.
        center: As the last exchange left it, likewise.
        factors: Of each blob of the layout, (n_blobs,), or of all, (1,); at least 0.
    """

    before: Vector
    center: Vector
    factors: Vector


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
        self._falls = np.ones(1, np.float32)

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
        before, elapsed, falls = self._center, clock - self._clock, self._falls
        self._center, self._clock, self._falls = center, clock, np.ones(1, np.float32)
        if before is None or elapsed <= 0:
            return None
        live = min(self._n_workers, elapsed / n_steps)
        return Velocity(before, center, (falls * (live + self._center_weight) / elapsed).astype(np.float32))

    def slow_down(self, falls: Vector) -> None:
        """Have the center's movement since the last ``observe`` count by ``falls``, of each blob or of all."""
        self._falls = self._falls * falls


def falls_of_rates(before: Vector, rates: Vector) -> Vector:
    """Return by what momentum is to be multiplied where the rates of a worker's steps have changed, each in [0, 1].

    A solver's history is in steps of the rate they were made with. After a drop steps of the large rate go on, and the
    force that would turn them has become small: with eight workers of cifar10_quick accuracy first falls by two points.
    Scaled with the rate they do not go on. A rate that grows leaves momentum as it is.

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv 1706.02677, remark 2 (momentum correction).

    Args:
        before: Rates of the step before, at least 0.
        rates: Of the step that follows.

    Example:
        >>> falls_of_rates(np.float32([1, 1, 1]), np.float32([0.25, 0.995, 2.0])).tolist()
        [0.25, 1.0, 1.0]
    """
    falls = np.ones_like(rates)
    return np.divide(rates, before, out=falls, where=rates < (1.0 - LEAST_FALL) * before)


def mix_history(blobs: Sequence[Vector], velocity: Velocity, share: float, statistics: StatisticBlobs) -> Vector:
    """Return a history with ``share`` of it replaced by a velocity; zero for statistics, as in Caffe.

    The memory of ``velocity.before`` becomes the history: a further vector would cost a quarter more traffic.

    Args:
        blobs: The history of SGD or Nesterov, flat and by blob of the layout; not written.
        velocity: The center's; its ``before`` is written.
        share: In [0, 1].
        statistics: BatchNorm's blobs.
    """
    mixed, center = velocity.before, velocity.center
    scratch = np.empty(min(MIXED_CHUNK_FLOATS, mixed.size), np.float32)
    own_share = np.float32(1.0 - share)
    factors = np.broadcast_to(np.float32(share) * velocity.factors, len(blobs))
    offset = 0
    for history, factor in zip(blobs, factors, strict=True):
        for start, stop in chunk_ranges(history.size, MIXED_CHUNK_FLOATS):
            span, own_part = slice(offset + start, offset + stop), scratch[: stop - start]
            chunk = mixed[span]
            np.subtract(chunk, center[span], out=chunk)
            np.multiply(chunk, factor, out=chunk)
            np.multiply(history[start:stop], own_share, out=own_part)
            np.add(chunk, own_part, out=chunk)
        offset += history.size
    mixed[statistics.positions] = 0.0
    return mixed
