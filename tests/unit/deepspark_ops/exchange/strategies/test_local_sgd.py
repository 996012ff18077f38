from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext, configure
from tests.reference.slow_strategies import slow_averaging


@pytest.mark.parametrize("momentum", [0.0, 0.75])
def test_rounds_equal_the_slow_reference(momentum: float) -> None:
    strategy = configure("local_sgd", {"block_momentum": momentum})
    rng = np.random.default_rng(0)
    initial = rng.standard_normal(8).astype(np.float32)
    rounds = rng.standard_normal((5, 3, 8)).astype(np.float32)
    center = initial.copy()
    extras = tuple(np.zeros(8, np.float32) for _ in range(strategy.server_vectors))
    for updates in rounds:
        start, n_held, push = center.copy(), 0, np.empty(8, np.float32)
        for update in updates:
            strategy.worker_chunk(start + update, center, push, push, start, ExchangeContext(3))
            n_held = strategy.server_chunk(center, extras, push, ExchangeContext(3), n_held)
        assert n_held == 3
        np.testing.assert_array_equal(center, start, err_msg="the center moves when the round is over")
        strategy.close_round(center, extras, n_held)
        assert not extras[0].any()
    expected = slow_averaging(initial.tolist(), rounds.tolist(), momentum)
    np.testing.assert_allclose(center, expected, rtol=1e-5, atol=1e-6)  # float32, order of additions


def test_plain_averaging_needs_no_vector_for_the_block() -> None:
    assert configure("local_sgd", {}).server_vectors == 1
    assert configure("local_sgd", {"block_momentum": 0.5}).server_vectors == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_momentum": 1.0}, r"block_momentum=1: must be in \[0, 1\)"),
        ({"block_rate": 0.0}, r"block_rate=0: must be in \(0, 2\]"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure("local_sgd", options)
