"""The center's velocity against one worked out by hand, and what taking it does to stability, by linear theory."""

from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.param_vector import StatisticBlobs
from deepspark_ops.train.worker.center_velocity import (
    MIXED_CHUNK_FLOATS,
    CenterVelocity,
    Velocity,
    falls_of_rates,
    mix_history,
)


def values(velocity: Velocity | None) -> list[float]:
    assert velocity is not None
    return (velocity.factors * (velocity.before - velocity.center)).tolist()


def test_velocity_is_the_movement_in_steps_of_a_worker() -> None:
    velocity = CenterVelocity(4)
    assert velocity.observe(np.float32([1.0, 2.0]), 10, 1) is None
    # Four workers: in 5 minibatches the center moves by a step.
    found = velocity.observe(np.float32([0.5, 2.25]), 15, 1)
    assert values(found) == [0.5, -0.25]
    assert velocity.observe(np.float32([0.0, 0.0]), 15, 1) is None, "no minibatch since"
    # Two live: half of the clock is this worker's, and a minibatch moves the center by a third of a step.
    later = velocity.observe(np.float32([-2.0, 0.0]), 27, 6)
    assert values(later) == [0.5, 0.0]


def test_a_heavy_center_moves_less_by_a_minibatch() -> None:
    velocity = CenterVelocity(16)
    velocity.observe(np.float32([1.0]), 16, 1, 4.0)
    # In a round of 16 it moves by 16/20 of a step.
    assert values(velocity.observe(np.float32([0.2]), 32, 1, 4.0)) == pytest.approx([1.0])


def test_what_the_center_did_before_the_rate_fell_counts_for_less_once() -> None:
    velocity = CenterVelocity(4)
    velocity.observe(np.float32([1.0]), 10, 1)
    velocity.slow_down(np.float32([0.5]))
    velocity.slow_down(np.float32([0.2]))
    assert values(velocity.observe(np.float32([0.0]), 15, 1)) == pytest.approx([0.1])
    assert values(velocity.observe(np.float32([-1.0]), 20, 1)) == [1.0]


@pytest.mark.parametrize(
    ("before", "rate", "fall"),
    [
        (0.5, 0.05, 0.1),
        (0.5, 0.49, 0.98),
        (0.5, 0.496, 1.0),
        (0.5, 0.5, 1.0),
        (0.5, 5.0, 1.0),
        (0.5, 0.0, 0.0),
        (0, 0, 1),
    ],
)
def test_momentum_falls_with_a_rate_that_drops(before: float, rate: float, fall: float) -> None:
    assert falls_of_rates(np.float32([before, 1]), np.float32([rate, 1])).tolist() == pytest.approx([fall, 1])


def test_the_center_counts_for_less_in_the_blobs_whose_rate_fell() -> None:
    velocity = CenterVelocity(4)
    velocity.observe(np.float32([1.0, 1.0]), 10, 1)
    velocity.slow_down(np.float32([1.0, 0.5]))
    assert values(velocity.observe(np.float32([0.0, 0.0]), 15, 1)) == [1.0, 0.5]


def test_history_is_mixed_by_blob_and_statistics_have_none() -> None:
    blobs = [np.float32([1.0]), np.float32([2.0, 3.0]), np.float32([4.0])]
    statistics = StatisticBlobs.from_json([[1, 2, 2, 3, 3, 0.5]])

    def velocity() -> Velocity:
        before, center = np.float32([2.5, 5.5, 4.5, 1.0]), np.float32([1.0, 1.0, 0.0, 1.0])
        return Velocity(before, center, np.float32([2, 1, 2]))

    assert mix_history(blobs, velocity(), 0.25, statistics).tolist() == [1.5, 0.0, 0.0, 0.0]
    mixed = mix_history(blobs, velocity(), 0.25, StatisticBlobs())
    assert mixed.tolist() == [0.75 * 1 + 0.5 * 1.5, 0.75 * 2 + 0.25 * 4.5, 0.75 * 3 + 0.25 * 4.5, 0.75 * 4]
    assert [blob.tolist() for blob in blobs] == [[1.0], [2.0, 3.0], [4.0]]


def test_a_blob_of_several_chunks_is_mixed_whole_in_the_memory_of_the_center_before() -> None:
    size = 2 * MIXED_CHUNK_FLOATS + 7
    rng = np.random.default_rng(1)
    history, before, center = (rng.standard_normal(size + 3).astype(np.float32) for _ in range(3))
    expected, kept = 0.5 * history + 0.75 * (before - center), (history.copy(), center.copy())
    velocity = Velocity(before, center, np.float32([1.5]))
    mixed = mix_history([history[:3], history[3:]], velocity, 0.5, StatisticBlobs())
    np.testing.assert_allclose(mixed, expected, rtol=1e-5, atol=1e-6)
    assert np.shares_memory(mixed, before)
    assert np.array_equal((history, center), kept)


def largest_growth(
    n_workers: int, rate: float, share: float, *, momentum: float = 0.9, alpha: float = 0.3, weight: float = 1.0
) -> float:
    """Return the spectral radius of one round of EASGD, tau 1, workers in turn, on a slope of curvature 1.

    The state: parameters, velocities, and the centers last seen of all workers, then the center.
    """
    size = 3 * n_workers + 1
    of_round, center = np.eye(size), size - 1
    for local in range(n_workers):
        velocity, seen = n_workers + local, 2 * n_workers + local
        step, exchange = np.eye(size), np.eye(size)
        step[velocity, velocity], step[velocity, local] = momentum, rate
        step[local] -= step[velocity]
        exchange[local, local], exchange[local, center] = 1 - alpha, alpha
        exchange[center, center], exchange[center, local] = 1 - alpha / weight, alpha / weight
        exchange[velocity] = 0
        exchange[velocity, velocity] = 1 - share
        per_round = share * (n_workers + weight) / n_workers  # p minibatches move the center by p/(p + m) of a step
        exchange[velocity, seen] = per_round
        exchange[velocity] -= per_round * exchange[center]
        exchange[seen] = exchange[center]
        of_round = exchange @ step @ of_round
    return float(np.abs(np.linalg.eigvals(of_round)).max())


def largest_rate(n_workers: int, share: float, **exchange: float) -> float:
    rates = np.arange(0.5, 4.5, 0.05)
    return float(next(rate for rate in rates if largest_growth(n_workers, rate, share, **exchange) >= 1.0))


@pytest.mark.parametrize(("n_workers", "gain"), [(4, 1.3), (8, 1.7)])
def test_momentum_from_the_center_bears_what_one_worker_bears(n_workers: int, gain: float) -> None:
    own, shared = largest_rate(n_workers, 0.0), largest_rate(n_workers, 0.5)
    assert shared / own == pytest.approx(gain, abs=0.08)
    assert shared == pytest.approx(3.8, rel=0.06)  # one worker bears 2 (1 + momentum)


@pytest.mark.parametrize(("n_workers", "own"), [(8, 3.3), (16, 2.35)])
def test_a_heavy_center_bears_it_too(n_workers: int, own: float) -> None:
    assert largest_rate(n_workers, 0.0, weight=2.0) == pytest.approx(own, abs=0.1)
    assert largest_rate(n_workers, 0.5, weight=2.0) == pytest.approx(3.7, abs=0.1)
