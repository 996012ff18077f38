"""Bodies of arriving requests, before a request enters the queue.

A client may send a request's headers and then a byte per second. Such requests must not keep other clients out. So each
request has a deadline. If too many bodies arrive, a new body replaces the slowest body of the address with most bodies.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from deepspark_ops.serve.refusal import RequestRefused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

_TOO_SLOW: Final = 408
_GRACE_S: Final = 1.0
"""Smallest age of a body in the calculation of the body's speed."""


class ClientGone(Exception):
    """The client closed the connection before the end of the body."""


@dataclass(eq=False)
class _Upload:
    address: str
    began: float
    n_bytes: int = 0
    is_displaced: asyncio.Event = field(default_factory=asyncio.Event)

    def bytes_per_s(self, now: float) -> float:
        return self.n_bytes / max(now - self.began, _GRACE_S)


class Uploads:
    """The arriving bodies; for one event loop."""

    def __init__(self, *, max_bytes: int, max_uploads: int, timeout_s: float) -> None:
        """Begin without a body.

        Args:
            max_bytes: Bytes of a body.
            max_uploads: Bodies at the same time; an address may have half of the bodies, at least one body.
            timeout_s: Time for a whole body.
        """
        self._max_bytes = max_bytes
        self._max_uploads = max_uploads
        self._max_of_address = max(1, max_uploads // 2)
        self._timeout_s = timeout_s
        self._uploads: set[_Upload] = set()

    async def body(self, receive: Receive, address: str) -> bytes:
        """Return the body of a request.

        Raises:
            RequestRefused: 408: the body is too slow or a new body replaced the body; 413: the body is too long.
            ClientGone: The connection was closed.
        """
        upload = self._enter(address)
        reading = asyncio.ensure_future(self._read(receive, upload))
        displaced = asyncio.ensure_future(upload.is_displaced.wait())
        try:
            ended, _ = await asyncio.wait(
                (reading, displaced), timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if reading in ended:
                return reading.result()
        finally:
            self._uploads.discard(upload)
            reading.cancel()
            displaced.cancel()
        if displaced in ended:
            text = f"{upload.n_bytes:,} bytes of the body were here; other requests of the same client needed the room"
        else:
            text = f"{upload.n_bytes:,} bytes of the body were here after {self._timeout_s:g} s"
        raise RequestRefused(_TOO_SLOW, f"{text}; send the body faster, or fewer samples in a request")

    def _enter(self, address: str) -> _Upload:
        of_address = Counter(upload.address for upload in self._uploads)
        crowded = address if of_address[address] >= self._max_of_address else None
        if crowded is None and len(self._uploads) >= self._max_uploads:
            crowded = of_address.most_common(1)[0][0]
        now = time.monotonic()
        if crowded is not None:
            of_crowded = (upload for upload in self._uploads if upload.address == crowded)
            slowest = min(of_crowded, key=lambda upload: (upload.bytes_per_s(now), upload.began))
            self._uploads.discard(slowest)
            slowest.is_displaced.set()
        entered = _Upload(address, now)
        self._uploads.add(entered)
        return entered

    async def _read(self, receive: Receive, upload: _Upload) -> bytes:
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            upload.n_bytes += len(parts[-1])
            if upload.n_bytes > self._max_bytes:
                raise too_large(upload.n_bytes, self._max_bytes)
            if not message.get("more_body", False):
                return b"".join(parts)


def too_large(n_bytes: int, allowed: int) -> RequestRefused:
    """Return the refusal of a body that is too long."""
    text = f"found a body of {n_bytes:,} bytes or more, expected at most {allowed:,}; send fewer samples in a request"
    return RequestRefused(413, text)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that returns ``body`` first, and then the messages of ``receive``."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
