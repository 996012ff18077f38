"""A worker that takes a grant and computes for ever; prints when and why its connection to the server breaks."""

from __future__ import annotations

import json
import os
import select
import socket
import sys

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.state.grants import Grant
from deepspark_ops.exchange.transport.connection import ExchangeAddress


def main() -> None:
    """Read the server's address from standard input."""
    fields = json.loads(sys.stdin.readline())
    link = connect(ExchangeAddress(**{**fields, "secret": bytes.fromhex(fields["secret"])}))
    link.join(0)
    assert isinstance(link.request_grant(4), Grant)
    sys.stdout.write("working\n")
    sys.stdout.flush()
    sock = link._server._connection.channel.sock  # type: ignore[attr-defined]
    watch = select.poll()
    watch.register(sock, select.POLLIN)
    watch.poll()
    sys.stdout.write(os.strerror(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) + "\n")


if __name__ == "__main__":
    main()
