"""Two ends of a connection with each kind of channel."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from functools import cache

from deepspark_ops.exchange.transport.channel.base import Channel, PlainChannel, Protection
from deepspark_ops.exchange.transport.channel.mac import MacChannel
from deepspark_ops.exchange.transport.channel.tls import TlsChannel, client_context, server_context, wrap
from deepspark_ops.exchange.transport.listening.certificate import RunCertificate, make_certificate

KEYS = b"a" * 32, b"b" * 32


@cache
def certificate() -> RunCertificate:
    """Return one certificate for all tests of a process."""
    return make_certificate()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return a connection's client and server end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = socket.create_connection(listener.getsockname(), 30)
        server, _ = listener.accept()
    server.settimeout(30)
    return client, server


def channels_over(
    protection: Protection, client: socket.socket, server: socket.socket, *, timeout_s: float = 30.0
) -> tuple[Channel, Channel]:
    """Return the channels of a client's and a server's socket."""
    pair: tuple[Channel, Channel]
    if protection == "tls":
        client_socket = wrap(client, client_context(), is_server=False)
        server_socket = wrap(server, server_context(certificate().pem), is_server=True)
        shaking = threading.Thread(target=server_socket.do_handshake)
        shaking.start()
        client_socket.do_handshake()
        shaking.join()
        pair = TlsChannel(client_socket), TlsChannel(server_socket)
    elif protection == "mac":
        pair = (
            MacChannel(client, send_key=KEYS[0], receive_key=KEYS[1]),
            MacChannel(server, send_key=KEYS[1], receive_key=KEYS[0]),
        )
    else:
        pair = PlainChannel(client), PlainChannel(server)
    for channel in pair:
        channel.use_timeout(timeout_s)
    return pair
