"""The handshake with TLS: replaced by other bytes, with other bytes inside, and damaged on the way."""

from __future__ import annotations

import functools
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.exchange.transport.channel.handshake import MAGIC, VERSION, greet_server
from deepspark_ops.exchange.transport.channel.tls import client_context, server_context, wrap
from deepspark_ops.exchange.transport.listening.certificate import RunCertificate, make_certificate
from deepspark_ops.exchange.transport.listening.gate import Gate, ServerKeys
from tests.fuzz.reader import Reader

_RUN, _SECRET, _MOST = 0x5EED, bytes(32), 1 << 15
_QUIET_S = 0.1
"""Where neither side has sent anything for so long both wait for bytes that damage has announced."""
_DAMAGE = struct.Struct("<HB")


@functools.cache
def _certificate() -> RunCertificate:
    return make_certificate()


@functools.cache
def _anybody() -> ssl.SSLContext:
    """Return the context of a server with the run's own certificate, for the most that a stranger could have."""
    return server_context(_certificate().pem)


@functools.cache
def _gate() -> Gate:
    certificate = _certificate()
    return Gate(_RUN, ServerKeys(_SECRET, "tls", certificate.digest, certificate.pem))


def _server(sock: socket.socket) -> bool:
    """Be the exchange server; returns whether the other side was let in."""
    with ExitStack() as stack:
        try:
            encrypted = stack.enter_context(_gate().take(sock, "peer"))
        except OSError:
            return False
        return _gate().greet(encrypted, "peer") is not None


def _client(sock: socket.socket) -> bool:
    """Be a worker; returns whether the other side was believed."""
    with ExitStack() as stack:
        try:
            encrypted = stack.enter_context(wrap(sock, client_context(), is_server=False))
            digest = _certificate().digest
            greet_server(
                encrypted, secret=_SECRET, run_id=_RUN, peer="peer", timeout_s=2.0, protection="tls", certificate=digest
            )
        except (OSError, DeepSparkError):
            return False
        return True


_Side = Callable[[socket.socket], bool]


def _raw(content: bytes, side: _Side) -> None:
    """Send the bytes in place of a TLS handshake."""
    local, remote = socket.socketpair()
    with local, remote:
        remote.sendall(content[:_MOST])
        remote.shutdown(socket.SHUT_WR)
        _refused(side(local))


def _inside(content: bytes, side: _Side) -> None:
    """Shake hands by TLS as anybody can, and send the bytes in place of what proves the secret."""
    local, remote = socket.socketpair()
    thread = threading.Thread(target=_speak, args=(remote, content[:_MOST], side is _client))
    thread.start()
    with local:
        was_let_in = side(local)
    thread.join()
    _refused(was_let_in)


def _speak(sock: socket.socket, content: bytes, is_server: bool) -> None:
    context = _anybody() if is_server else client_context()
    with suppress(OSError, ValueError), wrap(sock, context, is_server=is_server) as encrypted:
        encrypted.settimeout(2.0)
        encrypted.do_handshake()
        encrypted.sendall(content)
        socket.socket.shutdown(encrypted, socket.SHUT_WR)
        while socket.socket.recv(encrypted, 1 << 12):  # what is closed with unread bytes takes back what it has sent
            pass


def _refused(was_let_in: bool) -> None:
    if was_let_in:
        msg = "a peer without the secret was let in, or believed"
        raise AssertionError(msg)


def _on_the_way(content: bytes, *, to_server: bool) -> None:
    """Change bytes between a worker and its server, in one direction: positions, each with the flipped bits."""
    n_bytes = len(content) // _DAMAGE.size * _DAMAGE.size
    changes = dict(_DAMAGE.iter_unpack(content[:n_bytes]))
    client, client_end = socket.socketpair()
    server, server_end = socket.socketpair()
    _gate()  # made once, before threads ask for it
    admissions: list[bool] = []
    sides = [
        threading.Thread(target=lambda side, sock: admissions.append(side(sock)), args=pair)
        for pair in ((_client, client), (_server, server))
    ]
    with client, client_end, server, server_end:
        for side in sides:
            side.start()
        ways = {client_end: server_end, server_end: client_end}
        _relay(ways, {client_end if to_server else server_end: changes}, quiet_s=_QUIET_S if changes else 30.0)
        client_end.close()
        server_end.close()
        for side in sides:
            side.join()
    if admissions != [True, True] and not changes:
        msg = "a worker and its server did not agree although nothing was changed"
        raise AssertionError(msg)


def _relay(
    ways: Mapping[socket.socket, socket.socket], changes: Mapping[socket.socket, dict[int, int]], *, quiet_s: float
) -> None:
    """Pass bytes on until a side has ended, or both sides wait for bytes announced by damage."""
    passed = dict.fromkeys(ways, 0)
    with suppress(OSError):
        while ready := select.select(list(ways), [], [], quiet_s)[0]:
            for source in ready:
                piece = bytearray(source.recv(1 << 16))
                for at, flipped in changes.get(source, {}).items():
                    if 0 <= at - passed[source] < len(piece):
                        piece[at - passed[source]] ^= flipped
                passed[source] += len(piece)
                if not piece:
                    return
                ways[source].sendall(piece)


def _hello() -> bytes:
    return struct.pack("<4sB3xQ32s", MAGIC, VERSION, _RUN, bytes(32))


def _flights() -> tuple[bytes, bytes]:
    """Return what a client says first, and what the server answers."""
    ways = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(ways[0], ways[1])
    server = _anybody().wrap_bio(ways[1], ways[0], server_side=True)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = ways[1].read()
    ways[1].write(hello)
    with suppress(ssl.SSLWantReadError):
        server.do_handshake()
    return hello, ways[0].read()


_WAYS: Sequence[tuple[Callable[[bytes], None], Callable[[], bytes]]] = (
    (partial(_raw, side=_server), lambda: _flights()[0]),
    (partial(_raw, side=_client), lambda: _flights()[1]),
    (partial(_inside, side=_server), lambda: bytes(64)),
    (partial(_inside, side=_client), lambda: _hello() + b"\1" + bytes(32)),
    (partial(_on_the_way, to_server=True), lambda: _DAMAGE.pack(11, 1) + _DAMAGE.pack(600, 128)),
    (partial(_on_the_way, to_server=False), lambda: _DAMAGE.pack(60, 4) + _DAMAGE.pack(900, 128)),
)
"""What the first byte of an input chooses, and a whole one of each."""


def _greet(content: bytes, folder: Path) -> None:
    del folder
    if content:
        _WAYS[content[0] % len(_WAYS)][0](content[1:])


def _greetings(_: Path) -> list[bytes]:
    return [bytes([number]) + greeting() for number, (_, greeting) in enumerate(_WAYS)]


READERS = (Reader("handshake_tls", _greetings, _greet, words=(b"\x16\x03\x01", b"\x14\x03\x03\0\1\1", MAGIC)),)
