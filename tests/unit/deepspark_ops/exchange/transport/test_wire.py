from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.errors import ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.base import PlainChannel
from deepspark_ops.exchange.transport.wire import Connection, Frame, unpack_frame

RUN = 0xABCDEF


def make_connection(
    sock: socket.socket, timeout_s: float = 30.0, limit_bytes: int = 4096, vanished_s: float = 30.0
) -> Connection:
    limits = {"timeout_s": timeout_s, "vanished_s": vanished_s}
    return Connection(PlainChannel(sock), run_id=RUN, limit_bytes=limit_bytes, peer="peer 7", **limits)


frames = st.builds(
    Frame,
    operation=st.sampled_from(list(wire.OPERATIONS)),
    dtype=st.sampled_from(list(wire.ITEM_BYTES)),
    worker=st.integers(-1, 2**31 - 1),
    turn=st.integers(0, 2**32 - 1),
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
    with pytest.raises(ProtocolError, match="p: not a frame of protocol version 9"):
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
    sender, right = (make_connection(s) for s in pair)
    vector = np.arange(100, dtype=np.float32)
    sender.send(Frame(wire.PUSH, wire.FLOAT32, count=100), wire.number_bytes(vector))
    sender.send_json(wire.ANSWER, {"a": [1, None, "é"]}, sequence=9)
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
    sender, right = (make_connection(s) for s in pair)
    sender.close()
    assert right.wait_frame() is None


def test_close_in_the_middle_names_what_is_missing(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, right = (make_connection(s) for s in pair)
    sender.send(Frame(wire.PUSH, wire.FLOAT32, count=10), bytes(12))
    sender.close()
    assert right.wait_frame() is not None
    with pytest.raises(ExchangeUnavailable, match="peer 7 closed the connection; 28 bytes of a pushed chunk"):
        right.receive_into(memoryview(bytearray(40)), "a pushed chunk")


def test_silence_names_what_was_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    right = make_connection(pair[1], timeout_s=0.3)
    with pytest.raises(ExchangeUnavailable, match=r"no answer from peer 7 within 0.3 s: waited for a frame"):
        right.receive_frame()
    with pytest.raises(ExchangeUnavailable, match=r"peer 7 was silent for 0.3 s: waited for statistics"):
        right.receive_into(memoryview(bytearray(4)), "statistics")


def test_a_peer_that_reads_nothing_is_noticed(pair: tuple[socket.socket, socket.socket]) -> None:
    sender = make_connection(pair[0], timeout_s=0.3)
    big = bytes(1 << 26)
    with pytest.raises(ExchangeUnavailable, match=r"was silent for 0.3 s: waited for room to send"):
        sender.send(Frame(wire.STATE, count=len(big)), big)


def test_what_is_not_json_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, right = (make_connection(s) for s in pair)
    sender.send(Frame(wire.CALL, count=3), b"{x}")
    frame = right.receive_frame()
    assert frame is not None
    with pytest.raises(ProtocolError, match="not JSON"):
        right.receive_json(frame)


def test_refusal_arrives_although_the_other_side_is_sending(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, right = (make_connection(s) for s in pair)
    sender.send(Frame(wire.STATE, count=100_000), bytes(100_000))
    refusing = threading.Thread(target=right.refuse, args=(ProtocolError("no such thing"),))
    refusing.start()
    frame = sender.receive_frame()
    assert frame is not None
    assert sender.receive_json(frame) == {"kind": "ProtocolError", "message": "no such thing"}
    sender.close()
    refusing.join(30)
    assert not refusing.is_alive()


def test_an_unread_refusal_raises_no_error(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "REFUSAL_S", 0.05)
    make_connection(pair[0]).refuse(ProtocolError("no"))  # the other side neither closes nor says anything
    assert b'"message": "no"' in pair[1].recv(1000)
    pair[0].close()
    make_connection(pair[1]).refuse(ProtocolError("no"))


@pytest.mark.parametrize("vanished_s", [0.3, 1.0, 5.0, 30.0, 60.0, 3600.0, 1e9])
def test_the_kernel_looks_for_a_host_that_vanished_in_time(
    pair: tuple[socket.socket, socket.socket], vanished_s: float
) -> None:
    make_connection(pair[0], vanished_s=vanished_s)
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    idle_s, interval_s, n_probes, timeout_ms = (
        pair[0].getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names
    )
    assert 1 <= idle_s <= 30
    assert timeout_ms == min(1000 * vanished_s, 2**31 - 1)
    if vanished_s <= 3600:
        assert idle_s + n_probes * interval_s == pytest.approx(max(2, vanished_s), rel=0.2)


def test_a_platform_without_such_options_has_connections(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"):
        monkeypatch.delattr(socket, name)
    make_connection(pair[0])
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
