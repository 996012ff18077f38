"""A worker may look at the center, to test the center, without a change of the next exchange."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.transport.link import WorkerLink
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings, update_of

N_PARAMS = 200


def two_links(stack: ExitStack, folder: Path, transport: str) -> tuple[WorkerLink, WorkerLink]:
    fields = {"n_params": N_PARAMS, "chunk": 33, "strategy": "downpour", "options": {"push_scale": 1.0}}
    if transport == "local":
        exchange = LocalExchange(make_settings(folder, **fields), initial_vector(N_PARAMS))
        return exchange.link(), exchange.link()
    settings = make_settings(folder, transport=transport, **fields)
    running = stack.enter_context(start_exchange(settings, initial_vector(N_PARAMS)))
    return connect(running.address), connect(running.address)


@pytest.mark.parametrize("transport", ["local", "socket", "shm"])
@pytest.mark.parametrize("as_start", [False, True])
def test_movement_is_measured_from_a_look_only_on_request(tmp_path: Path, transport: str, as_start: bool) -> None:
    with ExitStack() as stack:
        mine, other = two_links(stack, tmp_path, transport)
        for worker, link in enumerate((mine, other)):
            link.join(worker)
        local, other_local = mine.pull(), other.pull()
        other_update, own_update = update_of(0, N_PARAMS), update_of(1, N_PARAMS)
        other.exchange(other_local + other_update)
        looked_at = mine.look(as_start=as_start)
        np.testing.assert_allclose(looked_at, initial_vector(N_PARAMS) + other_update, rtol=1e-6)
        begin = looked_at if as_start else local
        new_local, report = mine.exchange(begin + own_update)
        # Downpour adds the own movement to whatever the center is; both pushes are there once.
        np.testing.assert_allclose(
            new_local, initial_vector(N_PARAMS) + other_update + own_update, rtol=1e-5, atol=1e-5
        )
        assert report.staleness == 1, "looking is no pull"
        for link in (mine, other):
            link.close()
