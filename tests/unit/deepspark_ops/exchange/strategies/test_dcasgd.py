from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import configure, find_strategy


def test_gradient_is_moved_along_its_own_square() -> None:
    strategy = configure("dcasgd", {"compensation": 0.5})
    gradient, local, center = (np.float32(v) for v in ([2.0, -1.0, 0.0], [1.0, 1.0, 1.0], [3.0, 0.0, 9.0]))
    # 2 + 0.5 * 4 * 2, -1 + 0.5 * 1 * -1, 0
    assert strategy.compensate(gradient, local, center, 1).tolist() == [6.0, -1.5, 0.0]


def test_sum_of_passes_is_compensated_as_their_mean() -> None:
    strategy = configure("dcasgd", {"compensation": 0.5})
    gradient, local, center = (np.float32(v) for v in ([4.0], [1.0], [3.0]))
    # The mean of two passes is 2 and becomes 2 + 0.5 * 4 * 2 = 6; the sum is twice the mean.
    assert strategy.compensate(gradient, local, center, 2).tolist() == [12.0]


def test_it_steps_after_every_minibatch_and_all_the_way() -> None:
    strategy = find_strategy("dcasgd")
    assert strategy.comm_period_one
    assert strategy.progress_per_step(8) == 1.0


def growth(n_workers: int, rate: float, momentum: float = 0.9) -> float:
    """Spectral radius of a round of workers in turn on the slope x^2 / 2: above 1 the center runs away.

    The state is the center, then the place where each worker took its gradient, then each one's velocity.
    """
    size = 1 + 2 * n_workers
    of_round = np.eye(size)
    for worker in range(n_workers):
        local, velocity = 1 + worker, 1 + n_workers + worker
        step = np.eye(size)
        step[velocity, velocity], step[velocity, local] = momentum, rate
        step[0] -= step[velocity]
        step[local] = step[0]
        of_round = step @ of_round
    return float(np.abs(np.linalg.eigvals(of_round)).max())


@pytest.mark.parametrize("n_workers", [2, 3, 4, 8, 16])
def test_what_two_workers_bear_whole_many_bear_within_the_limit(n_workers: int) -> None:
    borne = max(rate for rate in np.geomspace(0.005, 1.0, 400) if growth(2, rate) <= 1.0)
    limit = find_strategy("dcasgd").rate_factor(n_workers)
    assert growth(n_workers, borne * limit) <= 1.0
    assert growth(n_workers, 2.1 * borne * limit) > 1.0  # and not much less would do


@pytest.mark.parametrize("value", [-0.1, float("inf"), float("nan")])
def test_compensation_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match=r"compensation=.*: must be a finite number, at least 0"):
        configure("dcasgd", {"compensation": value})
