"""Strategies whose workers wait for each other give the same through one process, a socket and shared memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.transport.link import ExchangeReport, WorkerLink
from deepspark_ops.param_vector import Vector
from tests.reference.slow_training import SlowSolver
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings
from tests.unit.deepspark_ops.exchange.strategies.test_sync import center_solver

Result = TypeVar("Result")

N_PARAMS, N_ROUNDS = 200, 12
FIELDS = {
    "n_params": N_PARAMS,
    "chunk": 33,
    "solver": center_solver(SlowSolver("Adam", momentum=0.9, base_lr=0.1), N_PARAMS),
}


def measure(link: WorkerLink, worker: int) -> tuple[Vector, Vector]:
    """Push gradients of |x - target|^2 / 2; return where the worker ended and what it sees of the center."""
    target = np.random.default_rng(6).standard_normal((2, N_PARAMS)).astype(np.float32)[worker]
    local = link.pull()
    for update in range(1, N_ROUNDS + 1):
        off = local - target
        note = RoundNote(float(off @ off) / 2, 0.1, update, is_first=update == 1)
        local, _ = link.exchange(off, note=note)
    return local, link.look()


def two_links(stack: ExitStack, folder: Path, strategy: str, transport: str) -> list[WorkerLink]:
    """Return links that have all joined before the first push: a round waits for all present workers."""
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


def both_work(
    folder: Path, strategy: str, transport: str, work: Callable[[WorkerLink, int], Result]
) -> tuple[Result, Result]:
    """Return what two workers, at work at the same time, found."""
    with ExitStack() as stack:
        links = two_links(stack, folder, strategy, transport)
        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(work, link, worker) for worker, link in enumerate(links)]
            first, second = (each.result(60) for each in running)
        for link in links:
            link.close()
    return first, second


@pytest.mark.parametrize("strategy", ["sync", "lbfgs"])
@pytest.mark.parametrize("transport", ["socket", "shm"])
def test_rounds_of_gradients_agree_bit_for_bit(tmp_path: Path, strategy: str, transport: str) -> None:
    expected = both_work(tmp_path / "local", strategy, "local", measure)
    results = both_work(tmp_path / transport, strategy, transport, measure)
    for (local, center), (expected_local, expected_center) in zip(results, expected, strict=True):
        assert np.array_equal(local, expected_local)
        assert np.array_equal(center, expected_center)
    assert np.array_equal(results[0][0], results[1][0]), "all workers are at one place"
    assert not np.array_equal(results[0][1], initial_vector(N_PARAMS))


@pytest.mark.parametrize("transport", ["local", "socket", "shm"])
def test_workers_agree_on_a_period_and_know_how_long_they_waited(tmp_path: Path, transport: str) -> None:
    is_off = threading.Event()

    def push(link: WorkerLink, worker: int) -> ExchangeReport:
        local = link.pull()
        if worker == 0:
            is_off.set()
        else:
            assert is_off.wait(60)
            time.sleep(0.8)
        return link.exchange(local + 1, note=RoundNote(comm_period=(3, 8)[worker]))[1]

    reports = both_work(tmp_path, "local_sgd", transport, push)
    ends = [report.round_end for report in reports]
    assert [end.comm_period for end in ends] == [8, 8]
    assert ends[0].waited_s > 0.1, "the first waits for the second"
    assert all(report.round_end.waited_s <= report.seconds for report in reports)
