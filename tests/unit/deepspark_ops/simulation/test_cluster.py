"""The times of virtual workers, slow workers, dying workers."""

from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.planning.simulator import Crew, ExchangeCost
from deepspark_ops.simulation.cluster import CenterQueue, Cluster

COST = ExchangeCost(0.001, 0.002, 0.0, 0.0)


def cluster(n_workers: int = 8, spread: float = 0.0, jitter: float = 0.0, **changes: float) -> Cluster:
    return Cluster(Crew(n_workers, 0.05, 1, spread, jitter), COST, **changes)


def test_equal_workers_take_the_time_of_a_minibatch() -> None:
    assert cluster().step_times(3).seconds(7) == pytest.approx(0.35)


@pytest.mark.parametrize(("share", "n_workers", "slow"), [(0.0, 8, 0), (0.125, 8, 1), (0.1, 4, 0), (0.125, 4, 1)])
def test_the_last_workers_are_slow(share: float, n_workers: int, slow: int) -> None:
    virtual_cluster = cluster(n_workers, stragglers=share, straggler_factor=3.0)
    times = [virtual_cluster.step_times(worker).seconds(1) for worker in range(n_workers)]
    assert virtual_cluster.n_slow == slow
    np.testing.assert_allclose(times, [0.05] * (n_workers - slow) + [0.15] * slow)


def test_times_vary_as_told_and_are_the_same_for_the_same_seed() -> None:
    times = [cluster(jitter=0.2, seed=seed).step_times(2) for seed in (1, 1, 2)]
    drawn = np.array([[step_times.seconds(1) for _ in range(20_000)] for step_times in times])
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert drawn[0].mean() == pytest.approx(0.05, rel=0.01)
    assert drawn[0].std() == pytest.approx(0.01, rel=0.05)


def test_workers_of_unequal_speed_make_as_many_steps_as_equal_ones() -> None:
    virtual_cluster = cluster(spread=0.3)
    times = [virtual_cluster.step_times(worker).seconds(1) for worker in range(8)]
    assert sum(1 / time for time in times) == pytest.approx(8 / 0.05)
    assert times == sorted(times)


def test_so_many_workers_die_while_the_run_is_expected_to_last() -> None:
    virtual_cluster = cluster(deaths=5)
    deaths = [virtual_cluster.deaths_of(worker, n_steps=1_600) for worker in range(8)]
    assert sum(map(len, deaths)) == 5
    assert all(
        1.0 <= moment <= 9.0 for deaths_of_worker in deaths for moment in deaths_of_worker
    )  # 1600 minibatches of 50 ms by 8 take 10 s
    assert deaths == [cluster(deaths=5).deaths_of(worker, 1_600) for worker in range(8)]
    assert all(deaths_of_worker == sorted(deaths_of_worker) for deaths_of_worker in deaths)


def test_the_center_serves_one_after_the_other() -> None:
    queue = CenterQueue()
    began = [queue.serve(arrival, 2.0) for arrival in (1.0, 2.0, 2.5, 10.0)]
    assert began == [1.0, 3.0, 5.0, 10.0]
    assert queue.busy_s == 8.0
