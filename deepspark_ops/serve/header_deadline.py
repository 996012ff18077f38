"""uvicorn's HTTP protocol with a deadline and a bound for the headers of each request; uvicorn has neither.

Without a deadline a client that sends a header a minute keeps a connection, and the memory of the headers, for ever.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_HEADER_BYTES: Final = 65_536
_LATE: Final = "408 Request Timeout"
_LARGE: Final = "431 Request Header Fields Too Large"


class _HeaderDeadline(AutoHTTPProtocol):  # type: ignore[misc]
    """One connection.

    Attributes:
        timeout_s: Time from the opened connection, or the first byte of a further request, to the end of the headers.
    """

    timeout_s: float
    _deadline: asyncio.TimerHandle | None = None
    _n_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        request = self.cycle
        if self._deadline is None and request is not None and request.response_complete:
            self._await_headers()
        super().data_received(data)
        if self.cycle is not request:
            self._stop_waiting()
        elif self._deadline is not None:
            self._n_bytes += len(data)
            if self._n_bytes > MAX_HEADER_BYTES:
                self._refuse(_LARGE, f"found more than {MAX_HEADER_BYTES:,} bytes of headers; send fewer headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._n_bytes = 0
        text = f"the headers were not whole after {self.timeout_s:g} s; send the request faster"
        self._deadline = asyncio.get_running_loop().call_later(self.timeout_s, self._refuse, _LATE, text)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: str, text: str) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self._n_bytes:  # a client that has sent nothing expects no answer
            body = json.dumps({"error": text}).encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
            self.transport.write(f"{head}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def protocol_with_deadline(timeout_s: float) -> type[asyncio.Protocol]:
    """Return the protocol for ``uvicorn.Config(http=...)``."""
    return type("HeaderDeadline", (_HeaderDeadline,), {"timeout_s": timeout_s})
