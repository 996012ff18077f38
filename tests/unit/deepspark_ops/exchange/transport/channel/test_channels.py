from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import get_args

import pytest

from deepspark_ops.exchange.transport.channel.base import Channel, Protection, drop_sent
from deepspark_ops.exchange.transport.channel.mac import RECORD_BYTES, MacChannel
from tests.unit.deepspark_ops.exchange.transport.channel.channel_pairs import KEYS, channels_over, tcp_pair

each_protection = pytest.mark.parametrize("protection", get_args(Protection))


def send_all(channel: Channel, *views: bytes) -> None:
    parts = [memoryview(view) for view in views]
    while parts:
        drop_sent(parts, channel.send(parts))


def receive_all(channel: Channel, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = channel.receive(view)
        assert got, "closed"
        view = view[got:]
    return bytes(data)


@each_protection
def test_views_of_every_size_arrive_in_order(protection: Protection) -> None:
    client, server = channels_over(protection, *tcp_pair())
    views = [os.urandom(size) for size in (1, 48, 16_336, 48, 48, 3, RECORD_BYTES, 48, 500_001, 1)]
    with closing(client), closing(server):
        sender = threading.Thread(target=send_all, args=(client, *views))
        sender.start()
        assert receive_all(server, sum(map(len, views))) == b"".join(views)
        sender.join()


@each_protection
def test_both_directions_move_at_once_in_one_thread_of_each_side(protection: Protection) -> None:
    """More than the kernel holds in each direction: who only sent, or only received, would wait for ever."""
    client, server = channels_over(protection, *tcp_pair())
    sent = os.urandom(9_000_000), os.urandom(9_000_000)
    received = bytearray(len(sent[1])), bytearray(len(sent[0]))

    def move(channel: Channel, out: bytes, into: bytearray) -> None:
        parts, room = [memoryview(out[:48]), memoryview(out)[48:]], [memoryview(into)[:48], memoryview(into)[48:]]
        poll = select.poll()
        while parts or room:
            moved = 0
            for act, views in ((channel.send_now, parts), (channel.receive_now, room)):
                try:
                    count = act(views) if views else 0
                except BlockingIOError:
                    continue
                drop_sent(views, count)
                moved += count
            if not moved:
                poll.register(channel.sock, select.POLLIN * bool(room) | select.POLLOUT * bool(parts))
                assert poll.poll(30_000), "both sides wait"

    with closing(client), closing(server):
        other = threading.Thread(target=move, args=(server, sent[1], received[1]))
        other.start()
        move(client, sent[0], received[0])
        other.join()
    assert received == (sent[1], sent[0])


@each_protection
def test_silence_ends_in_time_and_what_comes_later_is_not_lost(protection: Protection) -> None:
    client, server = channels_over(protection, *tcp_pair(), timeout_s=0.05)
    with closing(client), closing(server):
        with pytest.raises(BlockingIOError):
            server.receive(memoryview(bytearray(4)))
        with pytest.raises(BlockingIOError):
            server.receive_now([memoryview(bytearray(4))])
        server.use_timeout(30.0)
        send_all(client, b"late")
        assert receive_all(server, 4) == b"late"


@each_protection
def test_who_takes_nothing_is_not_waited_for(protection: Protection) -> None:
    client, server = channels_over(protection, *tcp_pair(), timeout_s=0.05)
    with closing(client), closing(server), pytest.raises(BlockingIOError):
        send_all(client, bytes(50_000_000))


@each_protection
def test_the_other_sides_end_is_an_end(protection: Protection) -> None:
    client, server = channels_over(protection, *tcp_pair())
    send_all(client, b"last")
    client.close()
    with closing(server):
        assert receive_all(server, 4) == b"last"
        assert server.receive(memoryview(bytearray(4))) == 0


@each_protection
def test_close_wakes_the_thread_that_waits(protection: Protection) -> None:
    client, server = channels_over(protection, *tcp_pair())
    received: list[object] = []

    def wait() -> None:
        try:
            received.append(server.receive(memoryview(bytearray(4))))
        except OSError:
            received.append(0)

    waiting = threading.Thread(target=wait)
    waiting.start()
    server.close()
    waiting.join(30)
    assert received == [0]
    client.close()


@each_protection
def test_a_reason_arrives_though_the_other_side_still_sends(protection: Protection) -> None:
    client, server = channels_over(protection, *tcp_pair())
    with closing(client):
        send_all(client, bytes(100_000))
        send_all(server, b"refused")
        ending = threading.Thread(target=server.finish, args=(30.0,))
        ending.start()
        assert receive_all(client, 7) == b"refused"
        client.close()
        ending.join(30)
        assert not ending.is_alive()
        server.close()


def wire_records(*payloads: bytes, key: bytes = KEYS[0]) -> list[bytes]:
    """Return the records of these payloads as they go over the wire."""
    local, wire = socket.socketpair()
    with closing(local), closing(wire):
        channel = MacChannel(local, send_key=key, receive_key=KEYS[1])
        records = []
        for payload in payloads:
            channel.send([memoryview(payload)])
            records.append(wire.recv(1 << 20))
    return records


def received_from(*records: bytes) -> bytes:
    """Return what a channel takes from these bytes of the wire, to their end.

    Raises:
        OSError: It refuses one.
    """
    local, wire = socket.socketpair()
    with closing(local), closing(wire):
        wire.sendall(b"".join(records))
        wire.shutdown(socket.SHUT_WR)
        channel = MacChannel(local, send_key=KEYS[1], receive_key=KEYS[0])
        data, room = b"", bytearray(1 << 16)
        while got := channel.receive(memoryview(room)):
            data += room[:got]
    return data


FIRST, SECOND, THIRD = wire_records(b"one", b"three", b"seven")


def test_records_in_turn_are_taken() -> None:
    assert received_from(FIRST, SECOND, THIRD) == b"onethreeseven"


def test_the_tag_is_the_one_that_the_format_says() -> None:
    """By openssl's own HMAC, of the number, the length and the payload."""
    import hashlib
    import hmac

    message = (1).to_bytes(8, "little") + (5).to_bytes(4, "little") + b"three"
    tag = hmac.new(KEYS[0], message, hashlib.sha256).digest()[:16]
    assert (5).to_bytes(4, "little") + b"three" + tag == SECOND


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((FIRST, FIRST), id="repeated"),
        pytest.param((SECOND, FIRST), id="reordered"),
        pytest.param((FIRST, THIRD), id="dropped"),
        pytest.param(wire_records(b"one", key=KEYS[1]), id="reflected"),
        pytest.param((bytes(4),), id="empty"),
        pytest.param((b"\xff" * 200,), id="too long"),
    ],
)
def test_records_out_of_turn_are_refused(records: tuple[bytes, ...]) -> None:
    with pytest.raises(OSError, match="not what was sent") as refusal:
        received_from(*records)
    assert refusal.value.errno == errno.EBADMSG


@pytest.mark.parametrize("at", range(len(FIRST)))
def test_no_byte_of_a_record_can_be_changed(at: int) -> None:
    """A shorter or longer length truncates the record or changes the next record: the channel hands nothing out."""
    changed = bytearray(FIRST + SECOND + THIRD)
    changed[at] ^= 1
    data = b""
    with suppress(OSError):
        data = received_from(bytes(changed))
    assert data == b""


@pytest.mark.parametrize("protection", ["mac", "tls"])
@pytest.mark.parametrize("at", [0, 3, 10, 20])
def test_what_is_changed_on_the_way_is_refused(protection: Protection, at: int) -> None:
    (client, client_relay), (server_relay, server) = tcp_pair(), tcp_pair()

    def relay(source: socket.socket, target: socket.socket, change: Callable[[bytearray], None]) -> None:
        with suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                change(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    change_next = threading.Event()

    def change(data: bytearray) -> None:
        if change_next.is_set():
            data[at] ^= 0x40

    threads = [
        threading.Thread(target=relay, args=(client_relay, server_relay, change)),
        threading.Thread(target=relay, args=(server_relay, client_relay, lambda data: None)),
    ]
    with ExitStack() as stack:
        for sock in (client_relay, server_relay):
            stack.enter_context(closing(sock))
        for thread in threads:
            thread.start()
            stack.callback(thread.join, 30)
        sender, receiver = channels_over(protection, client, server)
        for channel in (sender, receiver):
            stack.callback(channel.close)
        send_all(sender, b"before")
        assert receive_all(receiver, 6) == b"before"
        receiver.use_timeout(0.5)
        change_next.set()
        send_all(sender, b"a push of a worker's parameters")
        # A length that has become longer is waited for.
        with pytest.raises(OSError, match=r"not what was sent|TLS: |temporarily unavailable|^$"):
            receive_all(receiver, 6)
