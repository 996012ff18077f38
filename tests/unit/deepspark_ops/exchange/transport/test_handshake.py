from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from deepspark_ops.errors import DeepSparkError, ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport import handshake
from deepspark_ops.exchange.transport.handshake import greet_client, greet_server
from deepspark_ops.exchange.transport.wire import MAGIC, VERSION

RUN = 0xABCDEF
SECRET = bytes(range(32))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    with closing(left), closing(right):
        yield left, right


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
        lambda: greet_client(right, secret=secrets[0], run_id=runs[0], peer="client"),
        lambda: greet_server(left, secret=secrets[1], run_id=runs[1], peer="server", timeout_s=5),
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
        right.sendall(handshake._HELLO.pack(MAGIC, VERSION, RUN, bytes(32)))
        right.recv(64, socket.MSG_WAITALL)
        right.sendall(handshake._VERDICT.pack(1, bytes(32)))

    _, client = both(
        pair,
        accept_anybody,
        lambda: greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=5),
    )
    assert "could not prove that it knows the run's secret; not our server" in str(client)


def test_clients_proof_cannot_be_sent_back_as_the_servers(pair: tuple[socket.socket, socket.socket]) -> None:
    def reflect() -> None:
        right = pair[1]
        right.sendall(handshake._HELLO.pack(MAGIC, VERSION, RUN, bytes(32)))
        proof = right.recv(64, socket.MSG_WAITALL)
        right.sendall(handshake._VERDICT.pack(1, proof[32:]))

    _, client = both(
        pair, reflect, lambda: greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=5)
    )
    assert isinstance(client, ProtocolError)


def test_another_protocol_is_named(pair: tuple[socket.socket, socket.socket]) -> None:
    def speak_http() -> None:
        pair[1].sendall(b"HTTP/1.1 400 Bad Request\r\n" + b" " * 40)

    _, client = both(
        pair, speak_http, lambda: greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=5)
    )
    assert "does not speak protocol version 3: it begins with b'HTTP'" in str(client)


def test_a_silent_server_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ExchangeUnavailable, match="handshake broke: timed out"):
        greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=0.1)
