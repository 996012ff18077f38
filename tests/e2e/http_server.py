"""An application behind a real port, for a browser."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

START_S = 60.0


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application for the length of a ``with`` block; yield the address."""
    import uvicorn

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + START_S
            while not server.started:
                assert time.monotonic() < deadline, f"the application was not served within {START_S:g} s"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(START_S)
