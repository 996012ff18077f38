"""Rounds in which a worker or the server is lost: nobody waits for ever, and nothing is counted twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import Vector
from tests.integration.exchange.test_deaths import kill_server
from tests.integration.exchange.test_round_transports import FIELDS, N_PARAMS, N_ROUNDS, both_work
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

BOTH_TRANSPORTS = [
    ("sync", "socket"),
    ("local_sgd", "shm"),
    ("lbfgs", "socket"),
    *(
        pytest.param(*pair, marks=pytest.mark.long)
        for pair in (("sync", "shm"), ("local_sgd", "socket"), ("lbfgs", "shm"))
    ),
]
TARGETS = np.random.default_rng(6).standard_normal((2, N_PARAMS)).astype(np.float32)


def push(link: WorkerLink, worker: int, local: Vector, update: int, *, is_local: bool) -> Vector:
    """Push the gradient of |x - target|^2 / 2, or a step along it where workers push parameters."""
    off = local - TARGETS[worker]
    note = None if is_local else RoundNote(float(off @ off) / 2, 0.1, update, is_first=update == 1)
    return link.exchange(local - np.float32(0.1) * off if is_local else off, note=note)[0]


def await_push(running: RunningExchange) -> None:
    """Return when a worker's push of the present round is in the server's sum: it waits for the others then."""
    wait_until(lambda: (running.center.counts > 0).all(), "a worker in its round")


@pytest.mark.parametrize(("strategy", "transport"), BOTH_TRANSPORTS)
def test_a_server_that_is_killed_while_a_worker_waits_in_a_round_changes_nothing(
    tmp_path: Path, strategy: str, transport: str
) -> None:
    """But for what an L-BFGS search knew: it begins anew at the center, and still comes near the minimum."""
    is_local = strategy == "local_sgd"

    def undisturbed(link: WorkerLink, worker: int) -> tuple[Vector, Vector]:
        local = link.pull()
        for update in range(1, N_ROUNDS + 1):
            local = push(link, worker, local, update, is_local=is_local)
        return local, link.look()

    expected = both_work(tmp_path / "whole", strategy, "local", undisturbed)
    settings = make_settings(tmp_path, strategy=strategy, transport=transport, **FIELDS)
    with ExitStack() as stack:
        running = stack.enter_context(start_exchange(settings, initial_vector(N_PARAMS)))
        links = [connect(running.address) for _ in range(2)]
        for worker, link in enumerate(links):
            stack.callback(link.close)
            link.join(worker)

        def disturbed(link: WorkerLink, worker: int) -> tuple[Vector, Vector]:
            local = link.pull()
            for update in range(1, 2 * N_ROUNDS + 1 if strategy == "lbfgs" else N_ROUNDS + 1):
                if worker == 1 and update == 5:
                    await_push(running)
                    kill_server(running)
                local = push(link, worker, local, update, is_local=is_local)
            return local, link.look()

        with ThreadPoolExecutor(2) as threads:
            results = [
                each.result(60) for each in [threads.submit(disturbed, *pair[::-1]) for pair in enumerate(links)]
            ]
        assert running.restarts == 1
        assert running.poll().uncertain_chunks == 0
    assert np.array_equal(results[0][0], results[1][0]), "all workers are at one place"
    if strategy == "lbfgs":
        minimum = TARGETS.mean(axis=0)
        away = [float(np.abs(at - minimum).max()) for at in (initial_vector(N_PARAMS), results[0][1])]
        assert away[1] < 0.1 * away[0], away
        return
    for (local, center), (expected_local, expected_center) in zip(results, expected, strict=True):
        assert np.array_equal(local, expected_local)
        assert np.array_equal(center, expected_center)


@pytest.mark.parametrize(("strategy", "transport"), BOTH_TRANSPORTS)
def test_a_worker_that_is_lost_in_a_round_is_not_waited_for(tmp_path: Path, strategy: str, transport: str) -> None:
    is_local = strategy == "local_sgd"
    settings = make_settings(tmp_path, strategy=strategy, transport=transport, exchange_timeout_s=2.0, **FIELDS)
    with start_exchange(settings, initial_vector(N_PARAMS)) as running, ThreadPoolExecutor(2) as threads:
        links = [connect(running.address) for _ in range(2)]
        for worker, link in enumerate(links):
            link.join(worker)
        locals_ = [link.pull() for link in links]
        both = [threads.submit(push, links[i], i, locals_[i], 1, is_local=is_local) for i in range(2)]
        locals_ = [each.result(60) for each in both]
        waiting = threads.submit(push, links[0], 0, locals_[0], 2, is_local=is_local)
        await_push(running)
        links[1].close()  # as the kernel does for a killed process
        local = waiting.result(60)
        for update in range(3, N_ROUNDS + 1):
            local = push(links[0], 0, local, update, is_local=is_local)
        assert running.poll().live_workers == (0,)
        assert np.isfinite(local).all()
        new_link = connect(running.address)
        new_link.join(1)
        assert new_link.request_grant(1), "from here on the others wait for it"
        pulled = new_link.pull()
        both = [
            threads.submit(push, link, i, at, N_ROUNDS + 1, is_local=is_local)
            for i, (link, at) in enumerate(((links[0], local), (new_link, pulled)))
        ]
        ends = [each.result(60) for each in both]
        assert np.isfinite(ends).all()
        for link in (links[0], new_link):
            link.close()
