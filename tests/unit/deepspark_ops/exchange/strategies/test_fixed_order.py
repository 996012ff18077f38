"""Several workers, a fixed order of exchanges: for every strategy the order explains the center bit for bit."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.strategies.base import Option, find_strategy, strategy_names
from deepspark_ops.param_vector import Vector
from tests.reference.slow_strategies import (
    AT_EACH_PUSH,
    IN_ROUNDS,
    LINE_SEARCHES,
    slow_averaging_in_order,
    slow_diloco_in_order,
    slow_mean_gradient,
)
from tests.reference.slow_training import SlowSolver
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings, update_of
from tests.unit.deepspark_ops.exchange.strategies.played_run import INITIAL, N_PARAMS, N_WORKERS, RUN, assert_same, play
from tests.unit.deepspark_ops.exchange.strategies.test_sync import center_solver

ALPHA = 0.3  # 0.9 / 3 workers
ORDERS = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]  # of the pushes of each round
PUSHES = [[update_of(10 * step + worker, N_PARAMS) for worker in range(N_WORKERS)] for step in range(len(ORDERS))]
RATE = 0.25


def play_rounds(folder: Path, strategy: str, options: dict[str, Option] | None = None) -> tuple[list[Vector], Vector]:
    """Return every round's sum of pushes and the center at the end; workers push ``PUSHES`` in ``ORDERS``."""
    solver = center_solver(SlowSolver("SGD", momentum=0.9), N_PARAMS)
    fields = {"n_params": N_PARAMS, "n_workers": N_WORKERS, "chunk": 7, "solver": solver}
    settings = make_settings(folder, strategy=strategy, options=options or {}, **fields)
    exchange = LocalExchange(settings, initial_vector(N_PARAMS))
    links = [exchange.link() for _ in range(N_WORKERS)]
    locals_ = {}
    for worker, link in enumerate(links):
        link.join(worker)
        locals_[worker] = link.pull()
    pushed = [threading.Event() for _ in links]
    sums = []
    await_round = exchange.coordinator.await_round

    def note_push(worker: int, sequence: int, note: RoundNote | None = None) -> int | None:
        if exchange.center.counts.min() == N_WORKERS and not pushed[worker].is_set():
            sums.append(exchange.center.extras[0].copy())
        pushed[worker].set()
        return await_round(worker, sequence, note)

    exchange.coordinator.await_round = note_push  # type: ignore[method-assign]

    def exchange_once(worker: int, step: int) -> None:
        is_gradient = find_strategy(strategy).solves_at_center
        content = PUSHES[step][worker] if is_gradient else locals_[worker] + PUSHES[step][worker]
        note = RoundNote(1.0, RATE, step + 1, is_first=step == 0)
        locals_[worker], _ = links[worker].exchange(content, note=note)

    for step, order in enumerate(ORDERS):
        for event in pushed:
            event.clear()
        threads = [threading.Thread(target=exchange_once, args=(worker, step)) for worker in order]
        for worker, thread in zip(order, threads, strict=True):
            thread.start()
            assert pushed[worker].wait(30), f"worker {worker} did not push"
        for thread in threads:
            thread.join(30)
    return sums, exchange.center.vector


def test_every_strategy_is_compared() -> None:
    assert sorted((*AT_EACH_PUSH, *IN_ROUNDS, *LINE_SEARCHES)) == list(strategy_names())


@pytest.mark.parametrize("strategy", AT_EACH_PUSH)
def test_exchanges_in_order_agree_bit_for_bit(tmp_path: Path, strategy: str) -> None:
    assert_same(play(tmp_path, strategy, moving_rate=ALPHA), AT_EACH_PUSH[strategy](INITIAL, RUN, N_WORKERS, ALPHA))


@pytest.mark.parametrize("strategy", IN_ROUNDS)
def test_rounds_in_order_agree_bit_for_bit(tmp_path: Path, strategy: str) -> None:
    _, center = play_rounds(tmp_path, strategy)
    np.testing.assert_array_equal(center, IN_ROUNDS[strategy](INITIAL, PUSHES, ORDERS, RATE))


@pytest.mark.parametrize("momentum", [0.0, 0.75])
def test_averages_in_order_agree_bit_for_bit(tmp_path: Path, momentum: float) -> None:
    _, center = play_rounds(tmp_path, "local_sgd", {"block_momentum": momentum})
    np.testing.assert_array_equal(center, slow_averaging_in_order(INITIAL, PUSHES, ORDERS, momentum))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_outer_steps_in_order_agree_bit_for_bit(tmp_path: Path, momentum: float) -> None:
    _, center = play_rounds(tmp_path, "diloco", {"outer_rate": 0.7, "outer_momentum": momentum})
    np.testing.assert_array_equal(center, slow_diloco_in_order(INITIAL, PUSHES, ORDERS, rate=0.7, momentum=momentum))


@pytest.mark.parametrize("strategy", ["sync", "lbfgs"])
def test_gradients_are_summed_in_the_order_of_their_pushes(tmp_path: Path, strategy: str) -> None:
    """Compare the mean alone: the line search of ``lbfgs`` has other tests."""
    sums, _ = play_rounds(tmp_path, strategy)
    for total, pushes, order in zip(sums, PUSHES, ORDERS, strict=True):
        mean = slow_mean_gradient(pushes, order)
        np.testing.assert_array_equal(total * np.float32(1.0 / N_WORKERS), mean)
        assert not np.array_equal(mean, slow_mean_gradient(pushes, order[::-1])), "the order shows"
