"""Links that fail silently: a worker and its exchange recover."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, closing
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
from deepspark_ops.exchange.transport.chunk_stream import ChunkStream
from deepspark_ops.exchange.transport.connection import ATTEMPT_SHARE, expect_json
from deepspark_ops.exchange.transport.wire import Frame
from tests.processes import wait_until
from tests.soak.proxy import Proxy
from tests.unit.deepspark_ops.exchange.exchange_run import CHUNK, initial_vector, make_settings

TIMEOUT_S = 4.0
LONG_S = 10.0
N_CHUNKS = 4


@pytest.mark.parametrize("fault", ["is_half_open", "is_held"])
def test_a_worker_whose_connection_is_silent_takes_another_one_within_its_timeout(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(
        tmp_path, transport="socket", strategy="downpour", options={"push_scale": 1.0}, exchange_timeout_s=LONG_S
    )
    with start_exchange(settings, initial_vector()) as running, ExitStack() as stack:
        proxy = Proxy((running.address.host, running.address.port))
        stack.callback(proxy.close)
        link = connect(replace(running.address, port=proxy.port))
        stack.callback(link.close)
        link.join(0)
        local = link.pull()
        n_before = proxy.n_connections
        setattr(proxy.condition, fault, True)

        def end_fault() -> None:
            """A request is lost or waits, and the fault is over."""
            wait_until(lambda: proxy.condition.n_stopped, "a request in the proxy")
            setattr(proxy.condition, fault, False)

        ending = threading.Thread(target=end_fault)
        ending.start()
        grant = link.request_grant(4)
        assert isinstance(grant, Grant)
        local, _ = link.exchange(local + np.float32(1.0))
        assert link.acknowledge(grant)
        ending.join(60)
        silences = [record.message for record in caplog.records if record.message.endswith("; trying again")]
        assert len(silences) == (1 if fault == "is_half_open" else 0), silences
        assert all(f"within {ATTEMPT_SHARE * LONG_S:g} s" in message for message in silences), silences
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


@pytest.mark.parametrize(
    ("strategy", "wire_dtype", "lost_from"),
    [
        *(("easgd", wire_dtype, lost_from) for wire_dtype in ("float32", "bfloat16") for lost_from in (0, 2, 4, 5)),
        # A pull after its push proves the push; the end can be lost.
        *(("async_diloco", "float32", lost_from) for lost_from in (4, 5)),
    ],
)
def test_pushes_that_are_lost_after_the_exchange_returned_are_sent_again_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, wire_dtype: str, lost_from: int
) -> None:
    """Of the four pushes, the end and its answer, those from ``lost_from`` are lost."""
    settings = make_settings(tmp_path, transport="socket", strategy=strategy, wire_dtype=wire_dtype)
    with (
        start_exchange(settings, initial_vector()) as running,
        closing(connect(running.address, confirms_later=True)) as link,
    ):
        link.join(0)
        local, grant = link.pull(), link.request_grant(4)
        assert isinstance(grant, Grant)
        moved = local + np.linspace(-1.0, 1.0, len(local), dtype=np.float32)
        push, send_end = ChunkStream.push, ChunkStream.send_end

        def push_or_lose(stream: ChunkStream, turn: int, payload: memoryview) -> None:
            if turn < lost_from:
                push(stream, turn, payload)

        def end_or_lose(stream: ChunkStream) -> None:
            if lost_from > N_CHUNKS:
                send_end(stream)
                wait_until(lambda: running.poll().exchanges == (1, 0), "the end of the exchange")
            stream._connection.channel.sock.shutdown(socket.SHUT_RDWR)

        with monkeypatch.context() as patch:
            patch.setattr(ChunkStream, "push", push_or_lose)
            patch.setattr(ChunkStream, "send_end", end_or_lose)
            new_local, _ = link.exchange(moved)
        kept = new_local.copy()
        assert running.poll().exchanges == (lost_from > N_CHUNKS, 0)
        assert isinstance(link.request_grant(4, done=[grant]), Grant)
        np.testing.assert_array_equal(new_local, kept)
        status = running.poll()
        assert (status.acknowledged, status.exchanges, status.duplicate_chunks) == (4, (1, 0), 0)
        # The center has moved by what the worker has lost, or by what the worker moved.
        moves = moved - new_local if strategy == "easgd" else new_local - local
        np.testing.assert_allclose(running.center.vector - initial_vector(), moves, atol=3e-6)
        assert np.abs(moves).max() > 0.1


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
