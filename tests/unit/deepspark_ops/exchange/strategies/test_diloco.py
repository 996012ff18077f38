from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext, configure
from tests.reference.slow_strategies import slow_averaging


def after_rounds(options: dict[str, float], rounds: np.ndarray, initial: np.ndarray) -> np.ndarray:
    """Return the center after rounds, (rounds, workers, parameters), of what each worker adds."""
    strategy = configure("diloco", options)
    center = initial.copy()
    extras = tuple(np.zeros(initial.size, np.float32) for _ in range(strategy.server_vectors))
    for updates in rounds:
        start, n_held, push = center.copy(), 0, np.empty(initial.size, np.float32)
        for update in updates:
            strategy.worker_chunk(start + update, center, push, push, start, ExchangeContext(len(updates)))
            n_held = strategy.server_chunk(center, extras, push, ExchangeContext(len(updates)), n_held)
        strategy.close_round(center, extras, n_held)
        assert not extras[0].any()
    return center


def test_without_outer_momentum_it_averages() -> None:
    rng = np.random.default_rng(0)
    initial, rounds = rng.standard_normal(8).astype(np.float32), rng.standard_normal((5, 3, 8)).astype(np.float32)
    center = after_rounds({"outer_rate": 1.0, "outer_momentum": 0.0}, rounds, initial)
    np.testing.assert_allclose(center, slow_averaging(initial.tolist(), rounds.tolist(), 0.0), rtol=1e-5, atol=1e-6)


def test_equal_movements_add_up_to_the_outer_rate_over_what_momentum_leaves() -> None:
    rounds = np.ones((200, 2, 1), np.float32)
    for momentum, total in ((0.9, 7.0), (configure("diloco", {}).outer_momentum, 1.0)):
        options = {"outer_momentum": momentum}
        previous = after_rounds(options, rounds[:199], np.zeros(1, np.float32))
        step = after_rounds(options, rounds, np.zeros(1, np.float32)) - previous
        assert step == pytest.approx(total, rel=1e-3)
        assert configure("diloco", options).progress_per_step(16) == pytest.approx(total / 16)
        assert configure("diloco", options).progress_per_step(4) == pytest.approx(min(1.0, total / 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outer_momentum": 1.0}, r"outer_momentum=1: must be in \[0, 1\)"),
        ({"outer_rate": 0.0}, r"outer_rate=0: must be in \(0, 2\]"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure("diloco", options)
