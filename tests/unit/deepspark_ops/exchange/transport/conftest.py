"""The two ends of a connection, for the tests of frames and handshakes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        connecting = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    with closing(connecting), closing(right):
        yield connecting, right
