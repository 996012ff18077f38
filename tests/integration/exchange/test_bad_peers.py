"""Strangers, liars and repeaters: the server refuses them and goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepspark_ops.errors import DeepSparkError, ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.worker_counters import APPLIED, APPLYING
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.server.process import PUSH_BUFFERS
from deepspark_ops.exchange.state.messages import REQUESTS, RequestGrant
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.handshake import greet_server
from deepspark_ops.exchange.transport.connection import (
    ServerConnection,
    Transport,
    call_once,
    expect_frame,
    expect_json,
)
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import StatisticBlobs, chunk_ranges
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import CHUNK, N_PARAMS, initial_vector, make_settings


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningExchange]:
    """One server for all the abuse of this file."""
    run_settings = make_settings(tmp_path_factory.mktemp("run"), transport="socket")
    with start_exchange(run_settings, initial_vector()) as started:
        pid = started.pid
        yield started
        assert started.poll().failure is None
        assert started.restarts == 0
        assert started.pid == pid


def open_connection(running: RunningExchange) -> Connection:
    """Return an authenticated connection that has not joined."""
    address = running.address
    sock = socket.create_connection((address.host, address.port), 30)
    channel = greet_server(sock, secret=address.secret, run_id=address.run_id, peer="server", timeout_s=30)
    return Connection(
        channel, run_id=address.run_id, limit_bytes=1 << 20, timeout_s=30.0, vanished_s=30.0, peer="server"
    )


def join(connection: Connection, worker: int, session: str = "s") -> int:
    request = {"call": "join", "worker": worker, "session": session, "transport": "socket"}
    return int(call_once(connection, request, worker, 0)["sequence"])


def still_serves(running: RunningExchange) -> None:
    link = connect(running.address)
    link.join(0)
    np.testing.assert_array_equal(link.pull().shape, (N_PARAMS,))
    link.leave()
    link.close()


def test_wrong_secret_is_refused(running: RunningExchange) -> None:
    with pytest.raises(ProtocolError, match="refused this process: its secret is not the run's"):
        connect(replace(running.address, secret=bytes(32))).join(0)
    still_serves(running)


def test_secret_is_in_no_text(running: RunningExchange) -> None:
    secret = running.address.secret
    assert len(secret) == 32
    assert secret.hex() not in repr(running.address)
    command = Path(f"/proc/{running.pid}/cmdline").read_bytes() + Path(f"/proc/{running.pid}/environ").read_bytes()
    assert secret.hex().encode() not in command
    assert secret not in command


def test_the_server_sees_no_gpu(running: RunningExchange) -> None:
    assert b"CUDA_VISIBLE_DEVICES=-1" in Path(f"/proc/{running.pid}/environ").read_bytes().split(b"\0")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=300))
def test_strangers_bytes_end_in_a_closed_connection(running: RunningExchange, garbage: bytes) -> None:
    with closing(socket.create_connection((running.address.host, running.address.port), 30)) as sock:
        with suppress(OSError):
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
    assert running.poll().clock == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.booleans(), st.binary(min_size=1, max_size=300), st.integers(0, 3))
def test_members_garbage_ends_in_a_closed_connection(
    running: RunningExchange, joined: bool, garbage: bytes, n_frames: int
) -> None:
    connection = open_connection(running)
    if joined:
        join(connection, 1)
    with suppress(DeepSparkError, OSError):
        for _ in range(n_frames):
            connection.send(Frame(wire.CALL, count=len(garbage)), garbage)
        connection.channel.sock.sendall(garbage)
        connection.channel.sock.shutdown(socket.SHUT_WR)
        connection.channel.sock.settimeout(30)
        while connection.channel.sock.recv(4096):
            pass
    connection.close()
    assert running.poll().clock == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
calls = st.sampled_from(
    ["describe", "join", "attach", "heartbeat", "event", "pulled", "state", "leave", "status", "no such", *REQUESTS]
)
# Without "want": a grant would move the clock of the server that all tests of this file share.
FIELDS = ("worker", "session", "transport", "line", "iteration", "meta", "arrays", "bytes")
REQUEST_FIELDS = ("number", "held", "grant", "dataset", "lease", "consumed")
field_values = json_values | st.just("train") | st.integers(0, 3)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls,
    st.dictionaries(st.sampled_from(FIELDS), json_values | st.just("train") | st.integers(0, 3), max_size=6),
    st.booleans(),
)
def test_members_wrong_calls_are_refused_or_answered(
    running: RunningExchange, call: str, fields: dict[str, object], joined: bool
) -> None:
    connection = open_connection(running)
    if joined:
        join(connection, 1)
    with suppress(ProtocolError, ExchangeUnavailable, ValueError):
        call_once(replace_timeout(connection), {**fields, "call": call}, 1, 1)
    connection.close()
    assert running.poll().failure is None


def replace_timeout(connection: Connection) -> Connection:
    """A call that leaves the server waiting for more (a state) need not be waited for as long as usual."""
    connection.channel.use_timeout(0.2)
    return connection


frames = st.builds(
    Frame,
    operation=st.sampled_from(list(wire.OPERATIONS)),
    dtype=st.sampled_from(list(wire.ITEM_BYTES)),
    worker=st.integers(-1, 5),
    turn=st.integers(0, 2**32 - 1) | st.integers(0, 5),
    sequence=st.integers(0, 3),
    offset=st.integers(0, 2**64 - 1) | st.sampled_from([0, CHUNK, 2 * CHUNK]),
    count=st.integers(0, 2**63) | st.sampled_from([1, CHUNK, N_PARAMS]),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(frames, min_size=1, max_size=4))
def test_members_wrong_frames_are_refused(running: RunningExchange, sent: list[Frame]) -> None:
    connection = open_connection(running)
    join(connection, 1)
    with suppress(DeepSparkError, OSError):
        for frame in sent:
            connection.send(frame, bytes(min(frame.payload_bytes, 5_000)))
        connection.channel.sock.shutdown(socket.SHUT_WR)
        connection.channel.sock.settimeout(30)
        while connection.channel.sock.recv(4096):
            pass
    connection.close()
    assert running.poll().failure is None


def test_after_all_that_the_server_still_works(running: RunningExchange) -> None:
    still_serves(running)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (Frame(wire.PULL, wire.FLOAT32, 1, 0, 0, 900, 200), r"pull of \[900, 1100\); the center has n_params=1000"),
        (Frame(wire.PULL, wire.FLOAT32, 1, 0, 0, 0, 301), "a chunk at most 300"),
        (Frame(wire.PUSH, wire.FLOAT32, 1, 0, 1, 0, 300), "push 0 of exchange 1, but exchange 0 expects push 0"),
        (Frame(wire.PUSH, wire.FLOAT32, 1, 0, 1, 1, 300), r"push 0 of \[1, \+300\)"),
        (Frame(wire.END, wire.BYTES, 1, 0, 1), "end of exchange 1, which is not open"),
        (Frame(wire.BEGIN, wire.BYTES, 1, 0, 5), "exchange 5 begun after exchange 0"),
        (Frame(wire.ANSWER, wire.BYTES, 1), "operation 2 is not for a server"),
        (Frame(wire.STATISTICS, wire.FLOAT32, 1, 0, 1, 0, 3), "3 statistics of dtype 1; the net has 0"),
    ],
)
def test_refusals_name_what_was_wrong(tmp_path: Path, frame: Frame, reason: str) -> None:
    run_settings = make_settings(tmp_path, n_workers=2, transport="socket", moving_rate=0.5)
    with start_exchange(run_settings, initial_vector()) as fresh:
        connection = open_connection(fresh)
        # Worker 0's order begins at chunk 0.
        join(connection, 0)
        connection.send(frame)
        with pytest.raises(ProtocolError, match=reason):
            expect_json(connection, wire.ANSWER)
        connection.close()


def test_frame_that_is_too_long_is_refused_before_it_is_read(running: RunningExchange) -> None:
    connection = open_connection(running)
    connection.send(Frame(wire.PUSH, wire.FLOAT32, count=2**40))
    with pytest.raises(ProtocolError, match="frame of 4,398,046,511,104 bytes announced, at most"):
        expect_json(connection, wire.ANSWER)
    connection.close()


def push(connection: Connection, worker: int, sequence: int, chunk: int, values: np.ndarray) -> None:
    start = chunk * CHUNK
    frame = Frame(wire.PUSH, wire.FLOAT32, worker, chunk, sequence, start, len(values))
    connection.send(frame, wire.number_bytes(values))


def test_duplicated_and_replayed_pushes_are_applied_once(tmp_path: Path) -> None:
    run_settings = make_settings(tmp_path, transport="socket")
    spans = [(0, 300), (300, 600), (600, 900), (900, 1000)]
    with start_exchange(run_settings, np.zeros(N_PARAMS, np.float32)) as fresh:
        connection = open_connection(fresh)
        sequence = join(connection, 0) + 1
        values = [np.full(stop - start, 1.0 + i, np.float32) for i, (start, stop) in enumerate(spans)]
        connection.send(Frame(wire.BEGIN, worker=0, sequence=sequence))
        assert expect_json(connection, wire.ANSWER)["place"] == 0
        push(connection, 0, sequence, 0, values[0])
        push(connection, 0, sequence, 0, values[0])
        push(connection, 0, sequence, 1, values[1])
        # A message on its way when a connection closes may or may not be applied; here the message must be applied.
        wait_until(lambda: int(fresh.center.counters[0, APPLIED]) == 2, "two applied chunks")
        connection.close()
        # The connection broke; the same process comes back and does not know how far it got.
        connection = open_connection(fresh)
        call_once(connection, {"call": "attach", "worker": 0, "session": "s"}, 0, 0)
        connection.send(Frame(wire.BEGIN, worker=0, sequence=sequence))
        assert expect_json(connection, wire.ANSWER)["place"] == 2
        for chunk in range(4):
            push(connection, 0, sequence, chunk, values[chunk])
        for _ in range(2):
            connection.send(Frame(wire.END, worker=0, sequence=sequence))
            expect_json(connection, wire.ANSWER)
        push(connection, 0, sequence, 3, values[3])
        status = fresh.poll()
        assert status.exchanges == (1, 0)
        wait_until(lambda: fresh.poll().duplicate_chunks == 4, "four ignored chunks")
        np.testing.assert_array_equal(fresh.center.vector, np.concatenate(values))
        connection.close()


def test_chunk_that_a_kill_left_half_applied_is_counted_and_not_applied_again(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path, transport="socket"), np.zeros(N_PARAMS, np.float32)) as fresh:
        connection = open_connection(fresh)
        sequence = join(connection, 0) + 1
        connection.send(Frame(wire.BEGIN, worker=0, sequence=sequence))
        expect_json(connection, wire.ANSWER)
        push(connection, 0, sequence, 0, np.ones(CHUNK, np.float32))
        wait_until(lambda: int(fresh.center.counters[0, APPLIED]) == 1, "an applied chunk")
        connection.close()
        # The counters of a server killed while adding the second chunk.
        fresh.center.counters[0, APPLYING] = 2
        fresh.center.vector[CHUNK : CHUNK + 10] += 1.0
        connection = open_connection(fresh)
        call_once(connection, {"call": "attach", "worker": 0, "session": "s"}, 0, 0)
        connection.send(Frame(wire.BEGIN, worker=0, sequence=sequence))
        assert expect_json(connection, wire.ANSWER)["place"] == 2
        assert fresh.poll().uncertain_chunks == 1
        assert float(fresh.center.vector.sum()) == CHUNK + 10
        connection.close()


def test_push_out_of_turn_is_refused(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path, transport="socket"), initial_vector()) as fresh:
        connection = open_connection(fresh)
        sequence = join(connection, 0) + 1
        connection.send(Frame(wire.BEGIN, worker=0, sequence=sequence))
        expect_json(connection, wire.ANSWER)
        push(connection, 0, sequence, 1, np.ones(CHUNK, np.float32))
        with pytest.raises(ProtocolError, match="push 1 of exchange 1, but exchange 1 expects push 0"):
            expect_json(connection, wire.ANSWER)
        np.testing.assert_array_equal(fresh.center.vector, initial_vector())
        connection.close()


@pytest.mark.parametrize("transport", ["socket", "shm"])
@pytest.mark.parametrize("silent_in", ["a frame", "between frames"])
def test_a_worker_that_falls_silent_with_the_lock_of_the_center_loses_it(
    tmp_path: Path, transport: Transport, silent_in: str
) -> None:
    run_settings = make_settings(tmp_path, lock="full", exchange_timeout_s=8.0)
    with start_exchange(run_settings, initial_vector()) as fresh:
        silent = open_connection(fresh)
        sequence = join(silent, 0) + 1
        silent.send(Frame(wire.BEGIN, worker=0, sequence=sequence))
        expect_json(silent, wire.ANSWER)
        if silent_in == "a frame":
            frame = Frame(wire.PUSH, wire.FLOAT32, 0, 0, sequence, 0, CHUNK)
            silent.channel.sock.sendall(frame.pack(fresh.address.run_id) + bytes(100))
        other = connect(replace(fresh.address, transport=transport))
        other.join(1)
        other.exchange(other.pull())
        assert fresh.poll().exchanges == (0, 1)
        with pytest.raises(ExchangeUnavailable, match=r"closed|broke"):
            expect_json(silent, wire.ANSWER)
        other.close()
        silent.close()


def test_half_sent_pushes_of_many_workers_hold_up_no_other_worker(tmp_path: Path) -> None:
    """A worker whose network stalls in a chunk may hold the memory of that chunk, not the memory of another worker."""
    n_stalled = PUSH_BUFFERS + 1
    run_settings = make_settings(tmp_path, n_workers=n_stalled + 1, transport="socket", exchange_timeout_s=10.0)
    with start_exchange(run_settings, initial_vector()) as fresh, ExitStack() as stack:
        for worker in range(n_stalled):
            stalled = open_connection(fresh)
            stack.callback(stalled.close)
            sequence = join(stalled, worker) + 1
            stalled.send(Frame(wire.BEGIN, worker=worker, sequence=sequence))
            chunk = int(expect_json(stalled, wire.ANSWER)["place"])
            position = Chunks(N_PARAMS, CHUNK, run_settings.running_strategy(), run_settings.statistics).order(
                worker, run_settings.n_workers, 0, 1
            )[chunk]
            start, stop = chunk_ranges(N_PARAMS, CHUNK)[position]
            frame = Frame(wire.PUSH, wire.FLOAT32, worker, chunk, sequence, start, stop - start)
            stalled.channel.sock.sendall(frame.pack(fresh.address.run_id) + bytes(100))
        healthy = connect(fresh.address)
        healthy.join(n_stalled)
        healthy.exchange(healthy.pull())
        assert fresh.poll().exchanges == (*[0] * n_stalled, 1)
        healthy.close()


def test_driver_connection_cannot_act_for_a_worker(running: RunningExchange) -> None:
    connection = ServerConnection(running.address, "driver")
    with pytest.raises(ProtocolError, match="has not joined"):
        connection.call({"call": "heartbeat"})
    connection.close()


def test_a_restarted_workers_statistics_are_its_own(tmp_path: Path) -> None:
    """The previous process died in exchange 1, after its statistics; the restarted worker repeats exchange 1."""
    statistics = StatisticBlobs.from_json([[0, 1, 1, 2, 2, 0.5]])
    initial = initial_vector()
    initial[:3] = (4.0, 1.0, 1.0)
    run_settings = make_settings(tmp_path, transport="socket", statistics=statistics)
    with start_exchange(run_settings, initial) as running:
        means = []
        for session, mean in (("dead", 2.0), ("restarted", 5.0)):
            connection = open_connection(running)
            assert join(connection, 0, session) == 0
            local = np.float32([mean, 1.0, 1.0])
            connection.send(Frame(wire.STATISTICS, wire.FLOAT32, 0, 0, 1, 0, 3), wire.number_bytes(local))
            expect_frame(connection, wire.STATISTICS)
            means.append(float(running.center.vector[0]))
            connection.close()
    assert means == [4.0, 7.0]


def test_a_request_in_another_workers_name_is_refused(running: RunningExchange) -> None:
    connection = open_connection(running)
    join(connection, 1)
    request = RequestGrant(4).numbered(0, 1)
    with pytest.raises(ProtocolError, match="request_grant in the name of worker 0"):
        call_once(connection, request.to_json(), 1, 1)
    connection.close()
    assert running.poll().clock == 0
