"""Strategies whose workers push gradients: the same bits through one process, a socket and shared memory."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.launch import start_exchange
from deepspark_ops.exchange.link import WorkerLink
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


def play(stack: ExitStack, folder: Path, strategy: str, transport: str) -> list[tuple[Vector, Vector]]:
    if transport == "local":
        exchange = LocalExchange(make_settings(folder, strategy=strategy, **FIELDS), initial_vector(N_PARAMS))
        links: list[WorkerLink] = [exchange.link(), exchange.link()]
    else:
        settings = make_settings(folder, strategy=strategy, transport=transport, **FIELDS)
        running = stack.enter_context(start_exchange(settings, initial_vector(N_PARAMS)))
        links = [connect(running.address), connect(running.address)]
    for worker, link in enumerate(links):
        link.join(worker)  # all of them before the first push: a round waits for who is there
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
