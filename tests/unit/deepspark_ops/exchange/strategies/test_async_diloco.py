from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext, Option, configure
from tests.reference.slow_strategies import slow_async_diloco, slow_averaging, slow_diloco_in_order, slow_downpour
from tests.unit.deepspark_ops.exchange.strategies.played_run import INITIAL, N_WORKERS, RUN, assert_same, play


@pytest.mark.parametrize(("delay", "rate", "momentum"), [(1, 0.5, 0.6), (2, 0.7, 0.9), (7, 1.0, 0.3)])
def test_momentum_moves_with_the_last_push_of_a_delay(tmp_path: Path, delay: int, rate: float, momentum: float) -> None:
    options: dict[str, Option] = {"delay": delay, "outer_rate": rate, "outer_momentum": momentum}
    expected = slow_async_diloco(INITIAL, RUN, N_WORKERS, rate=rate, momentum=momentum, delay=delay)
    assert_same(play(tmp_path, "async_diloco", options), expected)


def test_without_momentum_it_is_downpour(tmp_path: Path) -> None:
    result = play(tmp_path, "async_diloco", {"outer_rate": 1.0, "outer_momentum": 0.0})
    assert_same(result, slow_downpour(INITIAL, RUN, N_WORKERS, 1.0 / N_WORKERS))


def pushed(options: dict[str, Option], moves: np.ndarray, n_workers: int) -> np.ndarray:
    """Return the center after the pushes ``moves`` (pushes, parameters), from zero."""
    strategy = configure("async_diloco", options)
    center = np.zeros(moves.shape[1], np.float32)
    extras = tuple(np.zeros_like(center) for _ in range(strategy.server_vectors))
    n_held = 0
    for move in moves:
        n_held = strategy.server_chunk(center, extras, move, ExchangeContext(n_workers), n_held)
    return center


def test_pushes_of_all_workers_come_to_one_step_of_diloco() -> None:
    moves = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
    rounds = moves.reshape(4, 3, 8).tolist()
    expected = slow_diloco_in_order([0.0] * 8, rounds, [(0, 1, 2)] * 4, rate=0.7, momentum=0.8)
    center = pushed({"outer_rate": 0.7, "outer_momentum": 0.8}, moves, 3)
    np.testing.assert_allclose(center, expected, rtol=1e-5, atol=1e-6)  # the same sums in another order
    plain = slow_averaging([0.0] * 8, rounds, 0.0)
    np.testing.assert_allclose(pushed({"outer_rate": 1.0, "outer_momentum": 0.0}, moves, 3), plain, atol=1e-5)


def test_equal_movements_add_up_to_the_outer_rate_over_what_momentum_leaves() -> None:
    options: dict[str, Option] = {"outer_rate": 0.7, "outer_momentum": 0.9, "delay": 4}
    moves = np.ones((800, 1), np.float32)
    step = pushed(options, moves, 8) - pushed(options, moves[:-4], 8)
    strategy = configure("async_diloco", options)
    assert step == pytest.approx(0.7 / (1 - 0.9), rel=1e-3)
    assert configure("async_diloco", {**options, "delay": 0}).progress_per_step(16) == pytest.approx(7 / 16)
    assert strategy.progress_per_step(16) == 1.0


def test_a_push_that_was_cut_off_is_counted_and_the_momentum_moves_with_the_next() -> None:
    strategy = configure("async_diloco", {"delay": 2})
    center, extras = np.zeros(1, np.float32), (np.zeros(1, np.float32), np.zeros(1, np.float32))
    push, context = np.ones(1, np.float32), ExchangeContext(8)
    n_held = strategy.server_chunk(center, extras, push, context, 0)
    assert (n_held, strategy.count_unfinished(extras, n_held)) == (1, 2)
    assert strategy.server_chunk(center, extras, push, context, 2) == 0
    assert (extras[0][0], extras[1][0]) == (0.0, 1.0), "the sum of two pushes by the delay"


def test_paces_are_evened_unless_the_user_says_no() -> None:
    assert configure("async_diloco", {}).even_pace
    assert not configure("async_diloco", {"even_pace": False}).even_pace
    assert not configure("diloco", {}).even_pace
    assert not configure("async_diloco", {}).for_workers(1).even_pace


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outer_momentum": 1.0}, r"outer_momentum=1: must be in \[0, 1\)"),
        ({"outer_rate": 0.0}, r"outer_rate=0: must be in \(0, 2\]"),
        ({"delay": -1}, "delay=-1: must not be negative; 0 means n_workers"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Option], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure("async_diloco", options)
