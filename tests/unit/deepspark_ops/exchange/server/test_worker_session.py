"""State of a worker whose connection has ended."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deepspark_ops.exchange.server.vector_session import VectorSession
from deepspark_ops.exchange.server.worker_session import WorkerSession


@pytest.mark.parametrize("kind", [VectorSession, WorkerSession])
def test_an_ended_connection_goes_without_a_search_for_garbage(kind: type[VectorSession]) -> None:
    """The buffers are 128 KiB with a MAC; passing workers made the server grow by a tenth between searches."""
    server = cast("Any", SimpleNamespace(center=None, exit=lambda _: None))
    connection = cast("Any", SimpleNamespace(wait_frame=lambda: None))
    coordinator = [cast("Any", SimpleNamespace())] if kind is WorkerSession else []
    session = kind(server, connection, *coordinator)
    ended = weakref.ref(session)
    gc.disable()
    try:
        session.run()
        del session
        assert ended() is None
    finally:
        gc.enable()
