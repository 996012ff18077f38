"""The proxy of the soak does what it says to a connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.soak.proxy import Proxy

LONG = bytes(range(256)) * 8


@pytest.fixture
def ends() -> Iterator[tuple[Proxy, socket.socket, socket.socket]]:
    """A proxy and the two ends of a connection through it."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        proxy = Proxy(listener.getsockname())
        stack.callback(proxy.close)
        worker = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 30))
        server, _ = listener.accept()
        stack.enter_context(server)
        server.settimeout(30)
        deadline = time.monotonic() + 30
        while not proxy.n_connections:  # it knows of a connection a little later than the server
            assert time.monotonic() < deadline
            time.sleep(0.001)
        yield proxy, worker, server


def received(sock: socket.socket, n_bytes: int) -> bytes:
    got = b""
    while len(got) < n_bytes and (piece := sock.recv(n_bytes - len(got))):
        got += piece
    return got


def is_silent(sock: socket.socket) -> bool:
    sock.settimeout(0.2)
    with suppress(TimeoutError):
        sock.recv(1)
        return False
    return True


def is_over(sock: socket.socket) -> bool:
    sock.settimeout(30)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_pass_both_ways(ends) -> None:
    _, worker, server = ends
    worker.sendall(LONG)
    assert received(server, len(LONG)) == LONG
    server.sendall(b"answer")
    assert received(worker, 6) == b"answer"


@pytest.mark.parametrize(("kind", "n_bytes"), [("flip", len(LONG)), ("twice", 2 * len(LONG))])
def test_one_piece_is_changed_and_the_next_is_not(ends, kind: str, n_bytes: int) -> None:
    proxy, worker, server = ends
    proxy.damage(kind, 5)
    worker.sendall(LONG)
    content = received(server, n_bytes)
    assert content == 2 * LONG if kind == "twice" else sum(a != b for a, b in zip(content, LONG, strict=True)) == 1
    worker.sendall(LONG)
    assert received(server, len(LONG)) == LONG


def test_a_piece_is_dropped(ends) -> None:
    proxy, worker, server = ends
    proxy.damage("drop", 5)
    worker.sendall(LONG)
    assert is_silent(server)
    server.settimeout(30)
    worker.sendall(b"next")
    assert received(server, 4) == b"next"


def test_what_is_held_back_comes_later(ends) -> None:
    proxy, worker, server = ends
    proxy.condition.is_held = True
    worker.sendall(LONG)
    assert is_silent(server)
    proxy.condition.is_held = False
    server.settimeout(30)
    assert received(server, len(LONG)) == LONG


def test_a_half_open_connection_stays_dead_and_neither_side_hears_of_it(ends) -> None:
    proxy, worker, server = ends
    proxy.condition.is_half_open = True
    worker.sendall(LONG)
    assert is_silent(server)
    proxy.condition.is_half_open = False
    worker.sendall(LONG)
    worker.shutdown(socket.SHUT_WR)
    assert is_silent(server)


def test_a_cut_is_heard_by_both(ends) -> None:
    proxy, worker, server = ends
    proxy.cut()
    for end in (worker, server):
        assert is_over(end)


def test_a_slow_link_takes_its_time(ends) -> None:
    proxy, worker, server = ends
    proxy.condition.bytes_per_s = 10 * len(LONG)
    begun = time.monotonic()
    threading.Thread(target=worker.sendall, args=(LONG,)).start()
    assert received(server, len(LONG)) == LONG
    assert time.monotonic() - begun >= 0.1


def test_a_link_that_is_down_lets_nobody_in(ends) -> None:
    proxy, *_ = ends
    proxy.condition.is_down = True
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", proxy.port), 30) as late:
        assert is_over(late)
