"""Links that fail without a word: a worker and its exchange get over them."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Grant
from tests.soak.proxy import Proxy
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

TIMEOUT_S = 3.0


@pytest.mark.parametrize("fault", ["is_half_open", "is_held"])
def test_a_worker_whose_connection_is_silent_takes_another_one_within_its_timeout(tmp_path: Path, fault: str) -> None:
    settings = make_settings(
        tmp_path, transport="socket", strategy="downpour", options={"push_scale": 1.0}, exchange_timeout_s=TIMEOUT_S
    )
    with start_exchange(settings, initial_vector()) as running, ExitStack() as stack:
        proxy = Proxy((running.address.host, running.address.port))
        stack.callback(proxy.close)
        link = connect(replace(running.address, port=proxy.port))
        stack.callback(link.close)
        link.join(0)
        local = link.pull()
        setattr(proxy.condition, fault, True)
        threading.Timer(0.2 * TIMEOUT_S, lambda: setattr(proxy.condition, fault, False)).start()
        n_before, begun = proxy.n_connections, time.monotonic()
        grant = link.request_grant(4)
        assert isinstance(grant, Grant)
        local, _ = link.exchange(local + np.float32(1.0))
        assert link.acknowledge(grant)
        assert time.monotonic() - begun < TIMEOUT_S
        assert proxy.n_connections - n_before == (1 if fault == "is_half_open" else 0)
        status = running.poll()
        assert (status.acknowledged, status.exchanges, status.duplicate_chunks) == (4, (1, 0), 0)
        np.testing.assert_array_equal(running.center.vector, initial_vector() + np.float32(1.0))
