from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.process import ExchangeServer
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.listening.gate import ServerKeys
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings


def test_a_refused_thread_costs_one_connection_and_not_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of processes (pids) refuses a thread for a moment: ``RuntimeError: can't start new thread``."""
    start, refused_threads = threading.Thread.start, []

    def refuse_first_connection(thread: threading.Thread) -> None:
        if thread.name.startswith("connection") and not refused_threads:
            refused_threads.append(thread.name)
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_first_connection)
    stack_size = threading.stack_size()
    settings = make_settings(tmp_path, transport="socket", exchange_timeout_s=10.0)
    center = Center.in_memory(initial_vector(), settings.center_shape())
    listener = socket.create_server(("127.0.0.1", 0))
    port, secret = listener.getsockname()[1], bytes(range(32))
    server = ExchangeServer(settings, ServerKeys(secret), center, listener)
    try:
        server.start()
        link = connect(ExchangeAddress("127.0.0.1", port, settings.run_id, secret, "socket", 10.0))
        link.join(0)
        link.exchange(link.pull())
        link.close()
    finally:
        server.stop()
        threading.stack_size(stack_size)
    assert len(refused_threads) == 1
