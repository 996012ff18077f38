from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.exchange.transport.listening import handshakes
from deepspark_ops.exchange.transport.listening.handshakes import PendingHandshakes

Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pairs]:
    """Six connections where four may be pending, two of one address."""
    monkeypatch.setattr(handshakes, "MAX_PENDING", 4)
    monkeypatch.setattr(handshakes, "MAX_PENDING_OF_ADDRESS", 3)
    with ExitStack() as stack:
        yield [tuple(stack.enter_context(sock) for sock in socket.socketpair()) for _ in range(6)]  # type: ignore[misc]


def dropped(pairs: Pairs) -> list[int]:
    """Return which connections have ended."""
    indices = []
    for i, (_, client) in enumerate(pairs):
        client.setblocking(False)
        try:
            client.recv(1)
        except BlockingIOError:
            continue
        indices.append(i)
    return indices


def test_the_oldest_of_an_address_with_too_many_is_dropped(pairs: Pairs) -> None:
    pending = PendingHandshakes()
    for host, (server, _) in zip(["b", "a", "a", "a", "a"], pairs, strict=False):
        pending.enter(server, host)
    assert dropped(pairs) == [1]


def test_where_all_places_are_taken_the_address_with_most_gives_one_up(pairs: Pairs) -> None:
    pending = PendingHandshakes()
    for host, (server, _) in zip(["b", "a", "c", "a", "d"], pairs, strict=False):
        pending.enter(server, host)
    assert dropped(pairs) == [1]


def test_what_is_authenticated_takes_no_place(pairs: Pairs) -> None:
    pending = PendingHandshakes()
    for server, _ in pairs:
        pending.enter(server, "a")
        with pending.greeting(server, "a:1"):
            pass
    assert dropped(pairs) == []


def test_the_log_counts_what_failed_and_says_little(pairs: Pairs, caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    pending = PendingHandshakes(lambda: now)

    def fail(i: int) -> None:
        with pending.greeting(pairs[i][0], f"a:{i}"):
            message = "a said nothing"
            raise ExchangeUnavailable(message)

    for i in range(6):
        now += 4.0
        with pytest.raises(ExchangeUnavailable):
            fail(i)
    assert [record.message for record in caplog.records] == [
        "connection of a:0 was not let in: a said nothing",
        "connection of a:3 was not let in: a said nothing; 2 other connections before it failed likewise",
    ]
