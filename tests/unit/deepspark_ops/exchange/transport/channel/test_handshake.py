from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import pytest

from deepspark_ops.errors import DeepSparkError, ExchangeUnavailable, ProtocolError
from deepspark_ops.exchange.transport.channel import handshake
from deepspark_ops.exchange.transport.channel.handshake import MAGIC, VERSION, greet_client, greet_server
from deepspark_ops.exchange.transport.channel.tls import client_context, server_context, wrap
from deepspark_ops.exchange.transport.listening.certificate import RunCertificate, make_certificate
from deepspark_ops.exchange.transport.listening.gate import ServerKeys
from tests.unit.deepspark_ops.exchange.transport.channel.channel_pairs import certificate

RUN = 0xABCDEF
SECRET = bytes(range(32))


def both(
    pair: tuple[socket.socket, socket.socket], server: Callable[[], object], client: Callable[[], object]
) -> list[DeepSparkError | None]:
    """Run both sides of a handshake; returns their errors, server's first."""
    errors: list[DeepSparkError | None] = [None, None]

    def attempt(i: int, side: Callable[[], object]) -> None:
        try:
            side()
        except DeepSparkError as error:
            errors[i] = error
            pair[1 - i].close()

    threads = [threading.Thread(target=attempt, args=(i, side)) for i, side in enumerate((server, client))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return errors


def greet(
    pair: tuple[socket.socket, socket.socket], secrets: tuple[bytes, bytes], runs: tuple[int, int] = (RUN, RUN)
) -> list[DeepSparkError | None]:
    server, right = pair
    return both(
        pair,
        lambda: greet_client(right, secret=secrets[0], run_id=runs[0], peer="client"),
        lambda: greet_server(server, secret=secrets[1], run_id=runs[1], peer="server", timeout_s=30),
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
        lambda: greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=30),
    )
    assert "could not prove that it knows the run's secret; not our server" in str(client)


def test_clients_proof_cannot_be_sent_back_as_the_servers(pair: tuple[socket.socket, socket.socket]) -> None:
    def reflect() -> None:
        right = pair[1]
        right.sendall(handshake._HELLO.pack(MAGIC, VERSION, RUN, bytes(32)))
        proof = right.recv(64, socket.MSG_WAITALL)
        right.sendall(handshake._VERDICT.pack(1, proof[32:]))

    _, client = both(
        pair, reflect, lambda: greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=30)
    )
    assert isinstance(client, ProtocolError)


def test_another_protocol_is_named(pair: tuple[socket.socket, socket.socket]) -> None:
    def speak_http() -> None:
        pair[1].sendall(b"HTTP/1.1 400 Bad Request\r\n" + b" " * 40)

    _, client = both(
        pair, speak_http, lambda: greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=30)
    )
    assert f"does not speak protocol version {VERSION}: it begins with b'HTTP'" in str(client)


@pytest.mark.parametrize(("client_s", "is_let_in"), [(9.0, True), (11.0, False)])
def test_a_client_on_a_busy_host_has_ten_seconds(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, client_s: float, is_let_in: bool
) -> None:
    receive, now = handshake._receive_in_time, 0.0

    def receive_late(sock: socket.socket, size: int, deadline: float, peer: str) -> bytes:
        nonlocal now
        if peer == "client":
            now = client_s
        return receive(sock, size, deadline, peer)

    monkeypatch.setattr(handshake, "_receive_in_time", receive_late)
    monkeypatch.setattr(handshake, "time", SimpleNamespace(monotonic=lambda: now))
    server, client = greet(pair, (SECRET, SECRET))
    assert (server is None, client is None) == (is_let_in, is_let_in)


def test_a_silent_server_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ExchangeUnavailable, match="handshake broke: timed out"):
        greet_server(pair[0], secret=SECRET, run_id=RUN, peer="server", timeout_s=0.1)


def encrypted(pair: tuple[socket.socket, socket.socket], certificate: RunCertificate) -> tuple[ssl.SSLSocket, ...]:
    """Return the client's and the server's socket, the server with this certificate."""
    client, server = pair
    return (
        wrap(client, client_context(), is_server=False),
        wrap(server, server_context(certificate.pem), is_server=True),
    )


def greet_by_tls(
    pair: tuple[socket.socket, socket.socket], *, shown: RunCertificate, pinned: bytes, own_digest: bytes
) -> list[DeepSparkError | None]:
    """Shake hands with one certificate on the connection, another expected by the client and a third at the server."""
    client, server = encrypted(pair, shown)
    with closing(client), closing(server):
        return both(
            (client, server),
            lambda: greet_client(
                server, secret=SECRET, run_id=RUN, peer="client", protection="tls", certificate=own_digest
            ),
            lambda: greet_server(
                client, secret=SECRET, run_id=RUN, peer="server", timeout_s=30, protection="tls", certificate=pinned
            ),
        )


def test_both_sides_accept_the_runs_certificate(pair: tuple[socket.socket, socket.socket]) -> None:
    run = certificate()
    assert greet_by_tls(pair, shown=run, pinned=run.digest, own_digest=run.digest) == [None, None]


def test_a_relay_with_a_certificate_of_its_own_fails_at_the_client(pair: tuple[socket.socket, socket.socket]) -> None:
    run, relay = certificate(), make_certificate()
    _, client = greet_by_tls(pair, shown=relay, pinned=run.digest, own_digest=run.digest)
    assert "server has another certificate than the run's" in str(client)
    assert isinstance(client, ProtocolError)


def test_it_fails_at_the_server_too(pair: tuple[socket.socket, socket.socket]) -> None:
    """A client that takes the relay's certificate makes its proof over this certificate: the carried proof convinces
    nobody.
    """
    run, relay = certificate(), make_certificate()
    server, _ = greet_by_tls(pair, shown=relay, pinned=relay.digest, own_digest=run.digest)
    assert str(server) == "client: could not prove that it knows the run's secret; refused"


def test_sides_that_protect_differently_do_not_agree(pair: tuple[socket.socket, socket.socket]) -> None:
    client_socket, right = pair
    server, _ = both(
        pair,
        lambda: greet_client(right, secret=SECRET, run_id=RUN, peer="client", protection="mac"),
        lambda: greet_server(client_socket, secret=SECRET, run_id=RUN, peer="server", timeout_s=30),
    )
    assert "could not prove" in str(server)


def test_keys_are_of_one_connection_and_one_direction() -> None:
    nonces = [bytes([i]) * 32 for i in range(3)]
    keys = {
        handshake._Shared(SECRET, RUN, server, client, "mac", b"").derive(purpose)
        for server, client in ((nonces[0], nonces[1]), (nonces[0], nonces[2]), (nonces[2], nonces[1]))
        for purpose in (b"worker", b"server", b"to worker", b"to server")
    }
    assert len(keys) == 12


def test_the_key_is_in_no_text() -> None:
    run_certificate = certificate()
    assert b"PRIVATE KEY" in run_certificate.pem
    assert "PRIVATE" not in repr(run_certificate)
    assert "PRIVATE" not in repr(ServerKeys(SECRET, "tls", run_certificate.digest, run_certificate.pem))


def test_the_two_directions_have_keys_that_the_other_side_expects(pair: tuple[socket.socket, socket.socket]) -> None:
    shared = handshake._Shared(SECRET, RUN, bytes(32), bytes(range(32)), "mac", b"")
    client, server = shared.channel(pair[0], is_server=False), shared.channel(pair[1], is_server=True)
    for sender, receiver in ((client, server), (server, client)):
        sender.send([memoryview(b"to the other side")])
        room = bytearray(17)
        assert receiver.receive(memoryview(room)) == 17
    client.send([memoryview(b"back to its sender")])
    pair[1].sendall(pair[1].recv(100))
    with pytest.raises(OSError, match="not what was sent"):
        client.receive(memoryview(bytearray(20)))
