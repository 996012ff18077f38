"""Strategies whose workers wait for each other: through one process, a socket and shared memory they do the same."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.launch import start_exchange
from deepspark_ops.exchange.link import ExchangeReport, WorkerLink
from deepspark_ops.exchange.local import LocalExchange
from deepspark_ops.exchange.round_closing import RoundNote
from deepspark_ops.param_vector import Vector
from tests.reference.slow_training import SlowSolver
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings
from tests.unit.deepspark_ops.exchange.strategies.test_sync import center_solver

N_PARAMS, N_ROUNDS = 200, 12
FIELDS = {
    "n_params": N_PARAMS,
    "chunk": 33,
    "solver": center_solver(SlowSolver("Adam", momentum=0.9, base_lr=0.1), N_PARAMS),
}


def measure(link: WorkerLink, found: dict[int, tuple[Vector, Vector]], worker: int, target: Vector) -> None:
    """Push gradients of |x - target|^2 / 2; leave where the worker ended and what it sees of the center."""
    local = link.pull()
    for update in range(1, N_ROUNDS + 1):
        off = local - target
        note = RoundNote(float(off @ off) / 2, 0.1, update, is_first=update == 1)
        local, _ = link.exchange(off, note=note)
    found[worker] = (local, link.look())


def two_links(stack: ExitStack, folder: Path, strategy: str, transport: str) -> list[WorkerLink]:
    """Return links that have joined, all of them before the first push: a round waits for who is there."""
    if transport == "local":
        exchange = LocalExchange(make_settings(folder, strategy=strategy, **FIELDS), initial_vector(N_PARAMS))
        links: list[WorkerLink] = [exchange.link(), exchange.link()]
    else:
        settings = make_settings(folder, strategy=strategy, transport=transport, **FIELDS)
        running = stack.enter_context(start_exchange(settings, initial_vector(N_PARAMS)))
        links = [connect(running.address), connect(running.address)]
    for worker, link in enumerate(links):
        link.join(worker)
    return links


def play(stack: ExitStack, folder: Path, strategy: str, transport: str) -> list[tuple[Vector, Vector]]:
    links = two_links(stack, folder, strategy, transport)
    found: dict[int, tuple[Vector, Vector]] = {}
    targets = np.random.default_rng(6).standard_normal((2, N_PARAMS)).astype(np.float32)
    threads = [
        threading.Thread(target=measure, args=(link, found, worker, targets[worker]))
        for worker, link in enumerate(links)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for link in links:
        link.close()
    return [found[worker] for worker in range(2)]


@pytest.mark.parametrize("strategy", ["sync", "lbfgs"])
@pytest.mark.parametrize("transport", ["socket", "shm"])
def test_rounds_of_gradients_agree_bit_for_bit(tmp_path: Path, strategy: str, transport: str) -> None:
    with ExitStack() as stack:
        expected = play(stack, tmp_path / "local", strategy, "local")
        found = play(stack, tmp_path / transport, strategy, transport)
    for (local, center), (expected_local, expected_center) in zip(found, expected, strict=True):
        assert np.array_equal(local, expected_local)
        assert np.array_equal(center, expected_center)
    assert np.array_equal(found[0][0], found[1][0]), "all workers are at one place"
    assert not np.array_equal(found[0][1], initial_vector(N_PARAMS))


@pytest.mark.parametrize("transport", ["local", "socket", "shm"])
def test_workers_agree_on_a_period_and_know_how_long_they_waited(tmp_path: Path, transport: str) -> None:
    reports: dict[int, ExchangeReport] = {}

    def push(link: WorkerLink, worker: int, wanted: int) -> None:
        local = link.pull()
        time.sleep(0.3 * worker)
        _, reports[worker] = link.exchange(local + 1, note=RoundNote(comm_period=wanted))

    with ExitStack() as stack:
        links = two_links(stack, tmp_path, "local_sgd", transport)
        threads = [threading.Thread(target=push, args=(links[k], k, (3, 8)[k])) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for link in links:
            link.close()
    ends = [reports[worker].round_end for worker in range(2)]
    assert [end.comm_period for end in ends] == [8, 8]
    assert ends[0].waited_s > 0.15, "the first waits for the second"
    assert all(end.waited_s <= reports[k].seconds for k, end in enumerate(ends))
