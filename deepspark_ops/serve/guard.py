"""What holds for every request, whatever it asks: who may ask, how much it may send, how many may ask at once."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from deepspark_ops.serve.metrics import ServerMetrics
from deepspark_ops.serve.refusal import RequestRefused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

PREDICT: Final = "/v1/predict"
PATHS: Final = ("/", "/page.css", "/page.js", "/health", "/metrics", "/v1/model", PREDICT)
OPEN_PATHS: Final = frozenset({"/", "/page.css", "/page.js", "/health"})
"""Need no token: they say nothing of the model. The page asks for the token."""
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
HEADERS: Final = {
    # Nothing is loaded from elsewhere, and no other page may show this one. blob: is the picture that was chosen.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob:;"
    " connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_RETRY_S = 1
_FOREIGN = frozenset({"cross-site", "same-site"})


@dataclass(frozen=True)
class Limits:
    """What a request may do.

    Attributes:
        max_bytes: Of its body.
        n_at_once: Predictions in progress.
        token: That it must have; empty for none.
        hosts: Names by which the server may be called; None for any. A page elsewhere can lead a browser to a loopback
            address by a name of its own; this tells it.
    """

    max_bytes: int
    n_at_once: int
    token: str = ""
    hosts: frozenset[str] | None = None


class Guard:
    """Stands in front of the application (ASGI); one event loop."""

    def __init__(self, app: App, limits: Limits, metrics: ServerMetrics) -> None:
        """Guard ``app``; what is answered is counted in ``metrics``."""
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._in_progress = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        path = scope["path"] if scope["path"] in PATHS else "other"
        status = 500

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            await self._answer(scope, receive, told)
        finally:
            seconds = time.monotonic() - began
            self._metrics.answered(path, status, seconds, is_prediction=path == PREDICT)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        is_prediction = scope["path"] == PREDICT and scope["method"] == "POST"
        try:
            headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            if is_prediction:
                self._check_room()
        except RequestRefused as refused:
            await send_refusal(send, refused)
            return
        if not is_prediction:
            await self._app(scope, self._bounded(receive), send)
            return
        self._in_progress += 1
        self._metrics.began()
        try:
            await self._app(scope, self._bounded(receive), send)
        finally:
            self._in_progress -= 1
            self._metrics.ended()

    def _check(self, scope: Message, headers: dict[str, str]) -> None:
        host = headers.get("host", "").rsplit(":", 1)[0] if "]" not in headers.get("host", "") else _bracketed(headers)
        if self._limits.hosts is not None and host not in self._limits.hosts:
            allowed = ", ".join(sorted(self._limits.hosts))
            raise RequestRefused(421, f'found host "{host}", expected one of {allowed}')
        if scope["method"] == "POST" and headers.get("sec-fetch-site") in _FOREIGN:
            raise RequestRefused(403, "found a request that a page of another site sent, expected none")
        if self._limits.token and scope["path"] not in OPEN_PATHS:
            given = headers.get("authorization", "")
            wanted = f"Bearer {self._limits.token}"
            if not hmac.compare_digest(given.encode("latin-1"), wanted.encode()):
                found = "another token" if given else "no token"
                raise RequestRefused(401, f"found {found}, expected the header 'Authorization: Bearer TOKEN'")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._limits.max_bytes:
            raise _too_large(int(length), self._limits.max_bytes)

    def _check_room(self) -> None:
        if self._in_progress >= self._limits.n_at_once:
            text = f"{self._in_progress} requests are in progress, no more are taken; send it again later"
            raise RequestRefused(503, text, retry_after_s=_RETRY_S)

    def _bounded(self, receive: Receive) -> Receive:
        n_bytes = 0

        async def bounded() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._limits.max_bytes:
                raise _too_large(n_bytes, self._limits.max_bytes)
            return message

        return bounded


def _too_large(n_bytes: int, allowed: int) -> RequestRefused:
    text = f"found a body of {n_bytes:,} bytes or more, expected at most {allowed:,}; send fewer samples in a request"
    return RequestRefused(413, text)


def _bracketed(headers: dict[str, str]) -> str:
    return headers["host"].partition("]")[0] + "]"


async def send_refusal(send: Send, refused: RequestRefused) -> None:
    """Send a refusal as JSON, ``{"error": TEXT}``."""
    body = json.dumps({"error": str(refused)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.retry_after_s is not None:
        headers.append((b"retry-after", str(refused.retry_after_s).encode()))
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
