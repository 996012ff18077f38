"""The center's velocity, measured by a worker at exchanges. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepspark_ops.param_vector import StatisticBlobs, Vector, chunk_ranges

MIXED_CHUNK_FLOATS = 65_536
"""Floats of one chunk of ``mix_history``: its four arrays share a core's L2 cache."""
LEAST_FALL = 0.01
"""A smaller fall of the rate between two steps of a worker does not change momentum: with momentum 0.9 the last ten
steps count, and their rates were nearly the same."""


class Velocity(NamedTuple):
    """``factors * (before - center)``, as the subtracted step of a worker. ``mix_history`` computes it by chunks.

    Attributes:
        before: The center at the exchange before, (n_params,), float32; the receiver may write it.
        center: The center after the last exchange, likewise.
        factors: Of each blob of the layout, (n_blobs,), or of all blobs, (1,); at least 0.
    """

    before: Vector
    center: Vector
    factors: Vector


class CenterVelocity:
    """Measures the center's movement from an exchange to the next, as the subtracted step of a worker.

    Workers that average parameters and not momentum swing about the center. Each worker follows its own minibatches,
    ten steps long with momentum 0.9, and is brought back. Momentum from the center damps these swings. On a slope with
    a constant curvature (p workers in turn, tau 1, moving rate 0.3, the eigenvalues of ``test_center_velocity.py``) a
    share of one half allows a rate 1.3 (p = 4) to 1.7 times (p = 8) as large: the limit of a single worker. The mean's
    progress stays the same.

    Used by a single thread.
    """

    def __init__(self, n_workers: int) -> None:
        """Take the run's p."""
        self._n_workers = n_workers
        self._center: Vector | None = None
        self._clock = 0
        self._falls = np.ones(1, np.float32)

    def observe(self, center: Vector, clock: int, n_steps: int, center_weight: float = 1.0) -> Velocity | None:
        """Return the velocity since the last call; None at the first call, or if the clock stood still.

        With q workers and a center of weight m a minibatch moves the center by 1/(q + m) of a step. Some of the p
        workers may be gone: q is estimated by this worker's share of the clock. If q is overestimated, the velocity
        grows at every exchange.

        Args:
            center: The center after the exchange, (n_params,), float32; kept until the velocity after the next.
            clock: End of the exchanged steps.
            n_steps: This worker's steps since the last call, at least 1.
            center_weight: Weight of the center in workers.
        """
        last_center, elapsed, falls = self._center, clock - self._clock, self._falls
        self._center, self._clock, self._falls = center, clock, np.ones(1, np.float32)
        if last_center is None or elapsed <= 0:
            return None
        live = min(self._n_workers, elapsed / n_steps)
        return Velocity(last_center, center, (falls * (live + center_weight) / elapsed).astype(np.float32))

    def slow_down(self, falls: Vector) -> None:
        """Multiply the center's movement since the last ``observe`` by ``falls``, of each blob or of all blobs."""
        self._falls = self._falls * falls


def falls_of_rates(old_rates: Vector, rates: Vector) -> Vector:
    """Return the factors on momentum after a change of the rates of a worker's steps, each in [0, 1].

    A solver's history holds steps of the old rate. After a drop these large steps go on, while the correcting force has
    become small: with eight workers of cifar10_quick accuracy first falls by two points. Scaling the history with the
    rate ends these steps. A growing rate does not change momentum.

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv 1706.02677, remark 2 (momentum correction).

    Args:
        old_rates: Rates of the step before, at least 0.
        rates: Rates of the next step.

    Example:
        >>> falls_of_rates(np.float32([1, 1, 1]), np.float32([0.25, 0.995, 2.0])).tolist()
        [0.25, 1.0, 1.0]
    """
    falls = np.ones_like(rates)
    return np.divide(rates, old_rates, out=falls, where=rates < (1.0 - LEAST_FALL) * old_rates)


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
