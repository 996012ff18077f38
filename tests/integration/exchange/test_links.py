"""Links that fail silently: a worker and its exchange recover."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.events import read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Grant, Wait
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.connection import expect_json
from deepspark_ops.exchange.transport.wire import Frame
from tests.processes import wait_until
from tests.soak.proxy import Proxy
from tests.unit.deepspark_ops.exchange.exchange_run import CHUNK, initial_vector, make_settings

TIMEOUT_S = 4.0


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
        threading.Timer(0.15 * TIMEOUT_S, lambda: setattr(proxy.condition, fault, False)).start()
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


def test_a_link_that_carries_nothing_any_more_is_named_by_both_sides_and_the_others_go_on(tmp_path: Path) -> None:
    limits = {"exchange_timeout_s": TIMEOUT_S, "grant_timeout_s": TIMEOUT_S}
    settings = make_settings(tmp_path, transport="socket", strategy="downpour", **limits)
    with start_exchange(settings, initial_vector()) as running, ExitStack() as stack:
        proxy = Proxy((running.address.host, running.address.port))
        stack.callback(proxy.close)
        gone, other = connect(replace(running.address, port=proxy.port)), connect(running.address)
        stack.callback(other.close)
        stack.callback(gone.close)
        gone.join(0)
        local, held = gone.pull(), gone.request_grant(4)
        assert isinstance(held, Grant)
        proxy.condition.is_half_open = True  # also of connections that are made from now on
        begun = time.monotonic()
        server = f"exchange server 127.0.0.1:{proxy.port}"
        message = rf"^worker 0: no answer from {server} after exchange_timeout_s={TIMEOUT_S:g}, [2-9] tries"
        with pytest.raises(ExchangeUnavailable, match=message):
            gone.exchange(local)
        assert time.monotonic() - begun < 10 * TIMEOUT_S
        other.join(1)
        while (answer := other.request_grant(4)) != replace(held, id=answer.id if isinstance(answer, Grant) else 0):
            assert time.monotonic() - begun < 60, answer
            if isinstance(answer, Wait):
                time.sleep(answer.seconds)
            else:
                assert isinstance(answer, Grant)
                other.acknowledge(answer)
        lost = [event for event in read_events(settings.events) if event.kind == "worker_lost"]
        assert (0, "silent") in [(event.worker, event.data["reason"]) for event in lost]


@pytest.mark.long
def test_the_server_names_a_worker_that_falls_silent_in_a_frame(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(tmp_path, transport="socket", exchange_timeout_s=TIMEOUT_S)
    with start_exchange(settings, initial_vector()) as running, ExitStack() as stack:
        proxy = Proxy((running.address.host, running.address.port))
        stack.callback(proxy.close)
        link = connect(replace(running.address, port=proxy.port))
        stack.callback(link.close)
        link.join(0)
        raw = link._server._connection  # type: ignore[attr-defined]
        raw.send(Frame(wire.BEGIN, worker=0, sequence=1))
        expect_json(raw, wire.ANSWER)
        frame = Frame(wire.PUSH, wire.FLOAT32, 0, 0, 1, 0, CHUNK)
        raw.channel.sock.sendall(frame.pack(running.address.run_id) + bytes(100))
        printed: list[str] = []

        def is_told() -> bool:
            printed.append(capfd.readouterr().err)
            return "worker 0 (127.0.0.1:" in "".join(printed)

        wait_until(is_told, "the server's word of a silent worker", timeout_s=30.0)
        assert f" was silent for {TIMEOUT_S:g} s: waited for " in "".join(printed)
        link.exchange(link.pull())
        assert running.poll().exchanges == (1, 0)
