from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.errors import DeepSparkError, ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.wire import Connection, Frame, unpack_frame

RUN = 0xABCDEF
SECRET = bytes(range(32))


def make_connection(sock: socket.socket, timeout_s: float = 0.3, limit_bytes: int = 4096) -> Connection:
    return Connection(sock, run_id=RUN, limit_bytes=limit_bytes, timeout_s=timeout_s, peer="peer 7")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    with closing(left), closing(right):
        yield left, right


frames = st.builds(
    Frame,
    operation=st.sampled_from(list(wire.OPERATIONS)),
    dtype=st.sampled_from(list(wire.ITEM_BYTES)),
    worker=st.integers(-1, 2**31 - 1),
    steps=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**64 - 1),
    count=st.integers(0, 1000),
)


@given(frames)
def test_header_survives_the_wire(frame: Frame) -> None:
    packed = frame.pack(RUN)
    assert len(packed) == 48
    assert unpack_frame(packed, run_id=RUN, limit_bytes=4000, peer="p") == frame


@given(st.binary(min_size=48, max_size=48))
def test_garbage_is_refused_by_name(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="p: not a frame of protocol version 3"):
        unpack_frame(header, run_id=RUN, limit_bytes=4000, peer="p")


@given(st.integers(4, 47), st.integers(0, 255))
def test_one_wrong_byte_never_passes_the_length_check(position: int, value: int) -> None:
    packed = bytearray(Frame(wire.PUSH, wire.FLOAT32, 1, 2, 3, 4, 5).pack(RUN))
    packed[position] = value
    try:
        frame = unpack_frame(packed, run_id=RUN, limit_bytes=4000, peer="p")
    except ProtocolError:
        return
    assert frame.payload_bytes <= 4000


def test_oversize_frame_is_refused_before_its_payload() -> None:
    packed = Frame(wire.PUSH, wire.FLOAT32, count=431_080).pack(RUN)
    with pytest.raises(ProtocolError) as caught:
        unpack_frame(packed, run_id=RUN, limit_bytes=65_536, peer="worker 3")
    assert str(caught.value) == "worker 3: frame of 1,724,320 bytes announced, at most 65,536 are allowed here"


def test_frame_of_another_run_is_refused() -> None:
    with pytest.raises(ProtocolError, match="frame of run 0000000000000001 on a connection of run 0000000000abcdef"):
        unpack_frame(Frame(wire.END).pack(1), run_id=RUN, limit_bytes=10, peer="p")


def test_numbers_and_json_arrive_as_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (make_connection(s) for s in pair)
    vector = np.arange(100, dtype=np.float32)
    left.send(Frame(wire.PUSH, wire.FLOAT32, count=100), wire.number_bytes(vector))
    left.send_json(wire.ANSWER, {"a": [1, None, "é"]}, sequence=9)
    frame = right.receive_frame()
    assert frame is not None
    received = np.empty(100, np.float32)
    right.receive_into(wire.number_bytes(received))
    np.testing.assert_array_equal(received, vector)
    frame = right.wait_frame()
    assert frame is not None
    assert frame.sequence == 9
    assert right.receive_json(frame) == {"a": [1, None, "é"]}


def test_close_at_a_frames_border_is_an_end_and_not_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (make_connection(s) for s in pair)
    left.close()
    assert right.wait_frame() is None


def test_close_in_the_middle_names_what_is_missing(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (make_connection(s) for s in pair)
    left.send(Frame(wire.PUSH, wire.FLOAT32, count=10), bytes(12))
    left.close()
    assert right.wait_frame() is not None
    with pytest.raises(ExchangeUnavailable, match="peer 7 closed the connection; 28 bytes of a pushed chunk"):
        right.receive_into(memoryview(bytearray(40)), "a pushed chunk")


def test_silence_names_what_was_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    _, right = (make_connection(s) for s in pair)
    with pytest.raises(ExchangeUnavailable, match=r"no answer from peer 7 within 0.3 s: waited for a frame"):
        right.receive_frame()
    with pytest.raises(ExchangeUnavailable, match=r"peer 7 was silent for 0.3 s: waited for statistics"):
        right.receive_into(memoryview(bytearray(4)), "statistics")


def test_a_peer_that_reads_nothing_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    left, _ = (make_connection(s) for s in pair)
    big = bytes(1 << 26)
    with pytest.raises(ExchangeUnavailable, match=r"was silent for 0.3 s: waited for room to send"):
        left.send(Frame(wire.STATE, count=len(big)), big)


def test_what_is_not_json_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (make_connection(s) for s in pair)
    left.send(Frame(wire.CALL, count=3), b"{x}")
    frame = right.receive_frame()
    assert frame is not None
    with pytest.raises(ProtocolError, match="not JSON"):
        right.receive_json(frame)


def test_refusal_arrives_although_the_other_side_is_sending(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (make_connection(s) for s in pair)
    left.send(Frame(wire.STATE, count=100_000), bytes(100_000))
    refusing = threading.Thread(target=right.refuse, args=(ProtocolError("no such thing"),))
    refusing.start()
    frame = left.receive_frame()
    assert frame is not None
    assert left.receive_json(frame) == {"kind": "ProtocolError", "message": "no such thing"}
    left.close()
    refusing.join(5)
    assert not refusing.is_alive()


def both(
    pair: tuple[socket.socket, socket.socket], server: Callable[[], None], client: Callable[[], None]
) -> list[DeepSparkError | None]:
    """Run both sides of a handshake; returns their errors, server's first."""
    found: list[DeepSparkError | None] = [None, None]

    def attempt(i: int, side: Callable[[], None]) -> None:
        try:
            side()
        except DeepSparkError as error:
            found[i] = error
            pair[1 - i].close()

    threads = [threading.Thread(target=attempt, args=(i, side)) for i, side in enumerate((server, client))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def greet(
    pair: tuple[socket.socket, socket.socket], secrets: tuple[bytes, bytes], runs: tuple[int, int] = (RUN, RUN)
) -> list[DeepSparkError | None]:
    left, right = pair
    return both(
        pair,
        lambda: wire.greet_client(right, secret=secrets[0], run_id=runs[0], peer="client"),
        lambda: wire.greet_server(left, secret=secrets[1], run_id=runs[1], peer="server", timeout_s=5),
    )


def test_both_sides_accept_the_same_secret(pair: tuple[socket.socket, socket.socket]) -> None:
    assert greet(pair, (SECRET, SECRET)) == [None, None]


def test_wrong_secret_is_refused_on_both_sides(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = greet(pair, (SECRET, bytes(32)))
    assert str(server) == "client: could not prove that it knows the run's secret; refused"
    assert str(client) == "server refused this process: its secret is not the run's"
    assert SECRET.hex() not in str(server)


def test_server_of_another_run_is_noticed_before_any_proof(pair: tuple[socket.socket, socket.socket]) -> None:
    _, client = greet(pair, (SECRET, SECRET), (RUN, RUN + 1))
    assert "serves run 0000000000abcdef, not 0000000000abcdf0" in str(client)


def test_a_false_server_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    def accept_anybody() -> None:
        right = pair[1]
        right.sendall(wire._HELLO.pack(wire.MAGIC, wire.VERSION, RUN, bytes(32)))
        right.recv(64, socket.MSG_WAITALL)
        right.sendall(wire._VERDICT.pack(1, bytes(32)))

    _, client = both(
        pair,
        accept_anybody,
        lambda: wire.greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=5),
    )
    assert "could not prove that it knows the run's secret; not our server" in str(client)


def test_clients_proof_cannot_be_sent_back_as_the_servers(pair: tuple[socket.socket, socket.socket]) -> None:
    def reflect() -> None:
        right = pair[1]
        right.sendall(wire._HELLO.pack(wire.MAGIC, wire.VERSION, RUN, bytes(32)))
        proof = right.recv(64, socket.MSG_WAITALL)
        right.sendall(wire._VERDICT.pack(1, proof[32:]))

    _, client = both(
        pair, reflect, lambda: wire.greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=5)
    )
    assert isinstance(client, ProtocolError)


def test_another_protocol_is_named(pair: tuple[socket.socket, socket.socket]) -> None:
    def speak_http() -> None:
        pair[1].sendall(b"HTTP/1.1 400 Bad Request\r\n" + b" " * 40)

    _, client = both(
        pair, speak_http, lambda: wire.greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=5)
    )
    assert "does not speak protocol version 3: it begins with b'HTTP'" in str(client)


def test_a_silent_server_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ExchangeUnavailable, match="handshake broke: timed out"):
        wire.greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=0.1)
