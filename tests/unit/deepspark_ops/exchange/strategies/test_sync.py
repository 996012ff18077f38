from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.strategies import Terms, find_strategy
from tests.reference.slow_strategies import slow_sync


def test_mean_of_momentum_updates_is_the_update_by_the_mean_gradient() -> None:
    n_workers, n_params, rate, momentum, decay = 3, 6, 0.1, 0.9, 0.01
    rng = np.random.default_rng(2)
    targets = rng.standard_normal((n_workers, n_params)).astype(np.float32)
    center = rng.standard_normal(n_params).astype(np.float32)
    expected = slow_sync(center.tolist(), targets.tolist(), 20, (rate, momentum, decay))
    strategy, terms = find_strategy("sync"), Terms(n_workers)
    extras, velocities = (np.zeros(n_params, np.float32),), np.zeros((n_workers, n_params), np.float32)
    push = np.empty(n_params, np.float32)
    for _ in range(20):
        start, n_held = center.copy(), 0
        for worker in range(n_workers):
            gradient = start - targets[worker]
            velocities[worker] = momentum * velocities[worker] + rate * (gradient + decay * start)
            strategy.worker_chunk(start - velocities[worker], center, push, push, start, terms)
            n_held = strategy.server_chunk(center, extras, push, terms, n_held)
        strategy.close_round(center, extras, n_held)
    np.testing.assert_allclose(center, expected, rtol=1e-4, atol=1e-5)  # float32 over 20 steps


def test_it_says_what_it_needs() -> None:
    strategy = find_strategy("sync")
    assert strategy.requires.comm_period_one
    assert strategy.requires.sgd_only
    assert strategy.progress_per_step(4) == 0.25
