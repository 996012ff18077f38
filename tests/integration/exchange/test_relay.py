"""Somebody on the network between worker and server, who changes what passes: refused by TLS and by MAC."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.channel.handshake import MAGIC
from deepspark_ops.exchange.transport.channel.tls import client_context, server_context, wrap
from deepspark_ops.exchange.transport.connection import HANDSHAKE_TRIES, ExchangeAddress
from deepspark_ops.exchange.transport.listening.certificate import make_certificate
from tests.unit.deepspark_ops.exchange.exchange_run import CHUNK, N_PARAMS, initial_vector, make_settings

Change = Callable[[bytearray], bool]
"""Changes what a worker has sent, in place; returns whether it did."""
PUSH_HEADER = struct.pack("<4sBBB", MAGIC, wire.VERSION, wire.PUSH, wire.FLOAT32)


class Relay:
    """Passes bytes on between workers and a server, and changes what a worker sends, once."""

    def __init__(self, server: tuple[str, int], change: Change) -> None:
        self._server = server
        self._change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.has_changed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                worker, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for source, target, change in ((worker, server, self._change), (server, worker, None)):
                    threading.Thread(target=self._pass_on, args=(source, target, change), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, change: Change | None) -> None:
        with closing(source):
            with suppress(OSError):
                while data := bytearray(source.recv(1 << 20)):
                    if change is not None and not self.has_changed.is_set() and change(data):
                        self.has_changed.set()
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)


def rewrite_a_push(data: bytearray) -> bool:
    """Replace a push in clear: 0.125 for each parameter of the push in this piece."""
    at = data.find(PUSH_HEADER)
    begin = at + wire.HEADER.size
    count = (len(data) - begin) // 4
    if at < 0 or count < 10:
        return False
    data[begin : begin + 40] = np.full(10, 0.125, np.float32).tobytes()
    return True


def flip_a_bit_of_a_long_piece(data: bytearray) -> bool:
    """Where nothing can be read a push is known by its length alone."""
    if len(data) < 2 * CHUNK:
        return False
    data[len(data) // 2] ^= 1
    return True


@pytest.mark.parametrize("protection", ["off", "mac", "tls"])
def test_a_push_that_is_changed_on_the_way(
    tmp_path: Path, protection: Protection, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """TLS and MAC refuse the push: the center stays, and the worker reconnects and repeats the true push.

    Without either the relay's push is taken. Both sides have proved the secret, and the relay has carried the proofs:
    ``off`` suits only a host that nothing leaves.
    """
    local = initial_vector()
    with (
        start_exchange(make_settings(tmp_path, transport="socket"), local, protection=protection) as running,
        ExitStack() as stack,
    ):
        server_address = running.address.host, running.address.port
        relay = Relay(server_address, flip_a_bit_of_a_long_piece if protection == "tls" else rewrite_a_push)
        stack.callback(relay.close)
        link = connect(replace(running.address, port=relay.port))
        stack.callback(link.close)
        link.join(0)
        pulled = link.pull()
        alpha = running.settings.alpha()
        with caplog.at_level(logging.WARNING):
            link.exchange(pulled + np.float32(1.0))
        assert relay.has_changed.is_set()
        moved = running.center.vector - local
        assert running.poll().exchanges == (1, 0)
        assert running.poll().duplicate_chunks == 0
    retries = [record.message for record in caplog.records if "trying again" in record.message]
    log = capfd.readouterr().err
    if protection == "off":
        np.testing.assert_allclose(np.unique(moved.round(4)), np.unique(np.float32([0.125, alpha]).round(4)), rtol=1e-3)
        assert retries == []
    else:
        np.testing.assert_allclose(moved, alpha, rtol=1e-5)
        assert len(retries) == 1
        assert "worker 0: connection to exchange server" in retries[0] or "closed the connection" in retries[0]
        assert "worker 0 (127.0.0.1:" in log
        assert "what arrived is not what was sent; something on the network changes it" in log


def test_a_relay_that_ends_tls_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, transport="socket")
    relays = make_certificate()
    with (
        start_exchange(settings, initial_vector(), protection="tls") as running,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):

        def relay() -> None:
            worker, _ = listener.accept()
            server = socket.create_connection((running.address.host, running.address.port))
            with (
                wrap(server, client_context(), is_server=False) as outside,
                wrap(worker, server_context(relays.pem), is_server=True) as inside,
                suppress(OSError),
            ):
                outside.do_handshake()
                inside.do_handshake()
                inside.sendall(outside.recv(1 << 10))
                assert inside.recv(1 << 10) == b""

        relaying = threading.Thread(target=relay)
        relaying.start()
        address: ExchangeAddress = replace(running.address, port=listener.getsockname()[1])
        with pytest.raises(ProtocolError, match="has another certificate than the run's") as refusal:
            connect(address).join(0)
        assert "\n" not in str(refusal.value)
        relaying.join(60)
        np.testing.assert_array_equal(running.center.vector, initial_vector())
        assert running.poll().live_workers == ()


def test_who_does_not_speak_tls_is_not_let_in(tmp_path: Path) -> None:
    with start_exchange(make_settings(tmp_path), initial_vector(), protection="tls") as running:
        in_clear = replace(running.address, protection="off", certificate=b"", exchange_timeout_s=0.5)
        with closing(connect(in_clear)) as link, pytest.raises(Exception, match="exchange server"):
            link.join(0)
        with closing(connect(running.address)) as link:
            assert link.join(0).n_params == N_PARAMS


class HandshakeRelay:
    """Passes bytes on, and flips a bit of the first ``n_flipped`` connections' handshakes."""

    def __init__(self, server: tuple[str, int], side: str, at: int, n_flipped: int) -> None:
        self.n_connections = 0
        self._server, self._side, self._at, self._n_flipped = server, side, at, n_flipped
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                worker, _ = self._listener.accept()
                self.n_connections += 1
                server = socket.create_connection(self._server)
                for side, source, target in (("worker", worker, server), ("server", server, worker)):
                    is_flipped = side == self._side and self.n_connections <= self._n_flipped
                    at = self._at if is_flipped else -1
                    threading.Thread(target=self._pass_on, args=(source, target, at), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, at: int) -> None:
        n_passed = 0
        with closing(source):
            with suppress(OSError):
                while data := bytearray(source.recv(1 << 20)):
                    if n_passed <= at < n_passed + len(data):
                        data[at - n_passed] ^= 1
                    n_passed += len(data)
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)


HANDSHAKE_BYTES = [
    ("server", 0), ("server", 4), ("server", 8), ("server", 30), ("server", 48), ("server", 60),
    ("worker", 3), ("worker", 60),
]  # fmt: skip
"""Magic, version, run, nonce, verdict and proof of the server; nonce and proof of the worker."""


@pytest.fixture(scope="module", params=["mac", "off"])
def handshaking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningExchange]:
    settings = make_settings(tmp_path_factory.mktemp("handshakes"), transport="socket")
    with start_exchange(settings, initial_vector(), protection=request.param) as running:
        yield running


@pytest.mark.parametrize(("side", "at"), HANDSHAKE_BYTES)
def test_a_bit_flipped_in_the_handshake_is_tried_again(
    handshaking: RunningExchange, side: str, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    running = handshaking
    with (
        closing(HandshakeRelay((running.address.host, running.address.port), side, at, 1)) as relay,
        closing(connect(replace(running.address, port=relay.port))) as link,
        caplog.at_level(logging.WARNING),
    ):
        assert link.join(0).n_params == N_PARAMS
        np.testing.assert_array_equal(link.pull(), initial_vector())
    retries = [record.message for record in caplog.records if "trying again" in record.message]
    assert len(retries) == 1


@pytest.mark.parametrize(("side", "at", "verdict"), [
    ("worker", 60, "refused this process: its secret is not the run's"),
    ("server", 60, "could not prove that it knows the run's secret; not our server"),
])  # fmt: skip
def test_handshakes_that_fail_each_time_end_in_the_verdict(tmp_path: Path, side: str, at: int, verdict: str) -> None:
    with (
        start_exchange(make_settings(tmp_path), initial_vector(), protection="mac") as running,
        closing(HandshakeRelay((running.address.host, running.address.port), side, at, 1_000)) as relay,
        closing(connect(replace(running.address, port=relay.port))) as link,
    ):
        with pytest.raises(ProtocolError, match=verdict):
            link.join(0)
        assert relay.n_connections == HANDSHAKE_TRIES
        assert running.poll().live_workers == ()


@pytest.mark.parametrize("protection", ["mac", "tls"])
def test_keys_are_in_no_argument_and_in_no_environment(tmp_path: Path, protection: Protection) -> None:
    with start_exchange(make_settings(tmp_path), initial_vector(), protection=protection) as running:
        of_process = Path(f"/proc/{running.pid}")
        texts = (of_process / "cmdline").read_bytes() + (of_process / "environ").read_bytes()
        assert b"PRIVATE" not in texts
        assert running.address.secret.hex().encode() not in texts
        folders = (tmp_path, running.settings.journal().parent)
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if b"PRIVATE" in path.read_bytes()]
        held = [(of_process / "fd" / name).readlink() for name in (of_process / "fd").iterdir()]
        assert not [path for path in held if "certificate" in str(path)]
