"""Exchanges in virtual time: order, times against closed forms, sums against slow references."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.grants import Grant, Schedule
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.exchange.transport.link import ExchangeReport
from deepspark_ops.param_vector import Vector
from deepspark_ops.planning.simulator import ExchangeCost
from deepspark_ops.simulation.virtual_link import VirtualCenter, VirtualLink
from deepspark_ops.simulation.virtual_time import VirtualTime, WorkerTime
from tests.reference.slow_strategies import AT_EACH_PUSH, IN_ROUNDS, LINE_SEARCHES, Run
from tests.reference.slow_training import SlowSolver
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings, update_of
from tests.unit.deepspark_ops.exchange.strategies.played_run import assert_same
from tests.unit.deepspark_ops.exchange.strategies.test_sync import center_solver

N_PARAMS, N_WORKERS, N_EXCHANGES = 30, 3, 6
STEP_S = (1.0, 1.3, 0.41)
"""Of each worker: they overtake each other."""
INITIAL = initial_vector(N_PARAMS).tolist()
ALPHA, RATE = 0.3, 0.25
FREE = ExchangeCost(0.0, 0.0, 0.0, 0.0)


@dataclass
class Played:
    """Actions of the workers, in the order of their pushes."""

    order: list[int] = field(default_factory=list)
    ends: list[tuple[float, int]] = field(default_factory=list)
    reports: list[ExchangeReport] = field(default_factory=list)
    locals: list[Vector] = field(default_factory=list)
    center: Vector = field(default_factory=lambda: np.zeros(0, np.float32))


def play(
    folder: Path,
    strategy: str,
    *,
    step_s: tuple[float, ...] = STEP_S,
    cost: ExchangeCost = FREE,
    host_cost: ExchangeCost | None = None,
    n_exchanges: int = N_EXCHANGES,
) -> Played:
    """Every worker computes for its time and exchanges ``n_exchanges`` times; an update depends on the worker's own
    count.
    """
    solver = center_solver(SlowSolver("SGD", momentum=0.9), N_PARAMS)
    n_workers = len(step_s)
    plan = Schedule(max_iter=n_workers * n_exchanges)
    fields = {"n_params": N_PARAMS, "n_workers": n_workers, "chunk": 7, "solver": solver, "schedule": plan}
    time = VirtualTime(n_workers)
    fields["options"] = {} if host_cost is None else {"center": "tree"}
    settings = make_settings(folder, strategy=strategy, **fields)
    exchange = LocalExchange(settings, initial_vector(N_PARAMS), time.now, workers_per_host=2)
    center = VirtualCenter(exchange, cost, time, host_cost)
    played = Played(locals=[initial_vector(N_PARAMS)] * n_workers)
    pushes_gradients = find_strategy(strategy).solves_at_center

    def work(worker: int) -> None:
        worker_time = WorkerTime(time, worker)
        link = VirtualLink(center, worker_time)
        link.join(worker)
        local = link.pull()
        for turn in range(n_exchanges):
            grant = link.request_grant(1)
            assert isinstance(grant, Grant)
            worker_time.sleep(step_s[worker])
            update = update_of(10 * turn + worker, N_PARAMS)
            played.order.append(worker)
            note = RoundNote(learning_rate=RATE, update=turn + 1) if pushes_gradients else None
            local, report = link.exchange(update if pushes_gradients else local + update, note=note)
            link.acknowledge(grant)
            played.ends.append((worker_time.now(), worker))
            played.reports.append(report)
        played.locals[worker] = local  # and stays: a strategy counts the present workers

    time.run([partial(work, worker) for worker in range(n_workers)])
    played.center = exchange.center.snapshot()
    assert center.finished_s == max(played.ends)[0]
    exchange.close()
    return played


def pushes_in_order(order: list[int]) -> Run:
    """Return (worker, what it added) in the order of the pushes."""
    turns = dict.fromkeys(order, 0)
    run = []
    for worker in order:
        run.append((worker, update_of(10 * turns[worker] + worker, N_PARAMS).tolist()))
        turns[worker] += 1
    return run


@pytest.mark.parametrize("strategy", AT_EACH_PUSH)
def test_the_virtual_order_explains_the_center_bit_for_bit(strategy: str, tmp_path: Path) -> None:
    played = play(tmp_path, strategy)
    # Worker 2 at 0.41, 0.82, ...; worker 0 at 1, 2, ...; worker 1 at 1.3, 2.6, ...
    assert played.order[:8] == [2, 2, 0, 2, 1, 2, 0, 2]
    assert_same(
        (played.locals, played.center), AT_EACH_PUSH[strategy](INITIAL, pushes_in_order(played.order), N_WORKERS, ALPHA)
    )


@pytest.mark.parametrize("strategy", IN_ROUNDS)
def test_rounds_are_explained_by_the_order_of_their_pushes(strategy: str, tmp_path: Path) -> None:
    played = play(tmp_path, strategy)
    orders = [played.order[start : start + N_WORKERS] for start in range(0, len(played.order), N_WORKERS)]
    assert orders == [[2, 0, 1]] * N_EXCHANGES
    rounds = [[update_of(10 * turn + worker, N_PARAMS) for worker in range(N_WORKERS)] for turn in range(N_EXCHANGES)]
    plain = [[update.tolist() for update in updates] for updates in rounds]
    np.testing.assert_array_equal(played.center, np.float32(IN_ROUNDS[strategy](INITIAL, plain, orders, RATE)))
    assert all(np.array_equal(local, played.center) for local in played.locals)


def test_every_strategy_plays() -> None:
    assert {*AT_EACH_PUSH, *IN_ROUNDS, *LINE_SEARCHES} == set(strategy_names())


def test_a_worker_alone_takes_its_own_time(tmp_path: Path) -> None:
    cost = ExchangeCost(push_s=0.01, pull_s=0.02, least_s=0.025, latency_s=0.003, own_s=0.004)
    played = play(tmp_path, "easgd", step_s=(1.0,), cost=cost)
    assert played.ends[-1][0] == pytest.approx(N_EXCHANGES * (1.0 + 0.03 + 0.003 + 0.004))
    assert played.reports[0].seconds == pytest.approx(cost.alone_s)


@pytest.mark.parametrize("n_workers", [2, 4])
def test_workers_that_arrive_together_queue_once(n_workers: int, tmp_path: Path) -> None:
    cost = ExchangeCost(push_s=0.1, pull_s=0.0, least_s=0.0, latency_s=0.01)
    played = play(tmp_path, "easgd", step_s=(1.0,) * n_workers, cost=cost)
    first = [seconds for seconds, _ in played.ends[:n_workers]]
    np.testing.assert_allclose(first, [1.0 + 0.1 * (turn + 1) + 0.01 for turn in range(n_workers)])
    # From then on the workers come in turn, and nobody waits.
    assert played.ends[-1][0] == pytest.approx(0.1 * (n_workers - 1) + N_EXCHANGES * (1.0 + 0.1 + 0.01))
    assert played.order == list(range(n_workers)) * N_EXCHANGES


def test_hosts_exchange_with_the_root_in_turn_and_workers_with_their_host_at_once(tmp_path: Path) -> None:
    cost = ExchangeCost(push_s=0.3, pull_s=0.0, least_s=0.0, latency_s=0.05)
    host_cost = ExchangeCost(push_s=0.0, pull_s=0.0, least_s=0.02, latency_s=0.0)
    played = play(tmp_path, "easgd", step_s=(1.0,) * 4, cost=cost, host_cost=host_cost, n_exchanges=2)
    # Second member of each host at its first exchange, first member at its second.
    expected = [1.02, 1.02, 1.37, 1.67, 2.02 + 0.37, 2.02 + 0.67, 2.39, 2.69]
    np.testing.assert_allclose(sorted(seconds for seconds, _ in played.ends), sorted(expected))
    assert {report.transport for report in played.reports} == {"tree"}


def test_a_center_that_is_too_slow_sets_the_pace(tmp_path: Path) -> None:
    cost = ExchangeCost(push_s=1.0, pull_s=0.0, least_s=0.0, latency_s=0.0)
    played = play(tmp_path, "easgd", step_s=(0.5,) * 4, cost=cost)
    assert played.ends[-1][0] == pytest.approx(0.5 + 4 * N_EXCHANGES * 1.0)


def test_a_round_ends_when_the_last_has_pushed_and_each_pulls_in_turn(tmp_path: Path) -> None:
    cost = ExchangeCost(push_s=0.1, pull_s=0.2, least_s=0.0, latency_s=0.01, own_s=0.02)
    played = play(tmp_path, "local_sgd", step_s=(1.0, 1.0, 3.0), cost=cost, n_exchanges=1)
    np.testing.assert_allclose([seconds for seconds, _ in played.ends], [3.1 + 0.2 * k + 0.03 for k in (1, 2, 3)])
    waited = [report.round_end.waited_s for report in played.reports]
    np.testing.assert_allclose(waited, [3.1 - 1.1, 3.1 - 1.2, 0.0], atol=1e-12)


def test_staleness_counts_the_exchanges_between(tmp_path: Path) -> None:
    played = play(tmp_path, "easgd", step_s=(1.0, 0.3))
    by_order = [report.staleness for report in played.reports]
    # Worker 1 at 0.3, 0.6, 0.9; worker 0 at 1.0 has missed three.
    assert by_order[:4] == [0, 0, 0, 3]
    assert by_order[4] == 1
