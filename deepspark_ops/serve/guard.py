"""Limits of every request: callers, sizes of bodies, number of requests at a time."""

from __future__ import annotations

import hmac
import ipaddress
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from deepspark_ops.serve.metrics import ServerMetrics
from deepspark_ops.serve.refusal import RequestRefused
from deepspark_ops.serve.uploads import ClientGone, Message, Receive, Uploads, replayed, too_large

Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

PREDICT: Final = "/v1/predict"
SALIENCY: Final = "/v1/saliency"
COMPUTED_PATHS: Final = frozenset({PREDICT, SALIENCY})
"""Paths whose answers need the net."""
PATHS: Final = ("/", "/page.css", "/page.js", "/health", "/metrics", "/v1/model", PREDICT, SALIENCY)
OPEN_PATHS: Final = frozenset({"/", "/page.css", "/page.js", "/health"})
"""Paths without a token: the answers say nothing about the model. The page asks for the token."""
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
HEADERS: Final = {
    # The page loads nothing from other hosts, and no other page may show the page. blob: is the chosen picture.
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
    """Bounds of a request.

    Attributes:
        max_bytes: Bytes of a body.
        n_at_once: Predictions and saliency maps in progress, and bodies that arrive; a client may send half of the
            bodies.
        token: Token that a request must have; empty for no token.
        hosts: Names of the server, without a port, in small letters; None for any name. A page of another site can lead
            a browser to this server by a name of that site, but not by an IP address: IP addresses are always allowed.
        upload_timeout_s: Time for a whole body.
    """

    max_bytes: int
    n_at_once: int
    token: str = ""
    hosts: frozenset[str] | None = None
    upload_timeout_s: float = 30.0

    def may_name(self, host: str) -> bool:
        """Return whether ``host``, without a port, is a name of the server."""
        return self.hosts is None or host.lower() in self.hosts or _is_address(host)


class Guard:
    """Checks requests before the application (ASGI); for one event loop."""

    def __init__(self, app: App, limits: Limits, metrics: ServerMetrics) -> None:
        """Guard ``app``; ``metrics`` counts the answers."""
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._in_progress = 0
        self._uploads = Uploads(
            max_bytes=limits.max_bytes, max_uploads=limits.n_at_once, timeout_s=limits.upload_timeout_s
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse a request, or hand the request to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        path = scope["path"] if scope["path"] in PATHS else "other"
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        try:
            await self._answer(scope, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - began
            self._metrics.answered(path, status, seconds, is_prediction=path == PREDICT)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        is_computed = scope["path"] in COMPUTED_PATHS and scope["method"] == "POST"
        try:
            headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            if is_computed:
                self._check_room()  # before the body, so that a client need not send one in vain
            body = await self._uploads.body(receive, (scope.get("client") or ("",))[0])
            if is_computed:
                self._check_room()
        except RequestRefused as refused:
            await send_refusal(send, refused)
            return
        except ClientGone:
            return
        receive = replayed(body, receive)
        if not is_computed:
            await self._app(scope, receive, send)
            return
        self._in_progress += 1
        self._metrics.began()
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_progress -= 1
            self._metrics.ended()

    def _check(self, scope: Message, headers: Mapping[str, str]) -> None:
        host = _name_of(headers.get("host", ""))
        if not self._limits.may_name(host):
            allowed = ", ".join(sorted(self._limits.hosts or ()))
            text = f'found host "{host}", expected an IP address or one of {allowed}; --host-names allows more names'
            raise RequestRefused(421, text)
        if scope["method"] == "POST" and not self._limits.token:  # no page of another site has the token
            self._check_origin(headers)
        if self._limits.token and scope["path"] not in OPEN_PATHS:
            authorization = headers.get("authorization", "")
            if not hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {self._limits.token}".encode()):
                finding = "another token" if authorization else "no token"
                raise RequestRefused(401, f"found {finding}, expected the header 'Authorization: Bearer TOKEN'")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._limits.max_bytes:
            raise too_large(int(length), self._limits.max_bytes)

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse a request of a page of another site.

        A browser sends Sec-Fetch-Site, except to an address without TLS other than loopback; a browser always sends
        Origin. Behind a proxy Origin has the proxy's name, which --host-names allows.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_foreign = site in _FOREIGN
        if site is None and origin is not None:
            authority = urlsplit(origin).netloc.lower()
            proxies = (self._limits.hosts or frozenset()) - LOOPBACK_NAMES
            is_foreign = authority != headers.get("host", "").lower() and authority not in proxies
        if is_foreign:
            raise RequestRefused(403, "found a request that a page of another site sent, expected none")

    def _check_room(self) -> None:
        if self._in_progress >= self._limits.n_at_once:
            text = f"{self._in_progress} requests are in progress, no more are taken; send it again later"
            raise RequestRefused(503, text, retry_after_s=_RETRY_S)


def _name_of(authority: str) -> str:
    """Return a host without the port.

    Example:
        >>> _name_of("localhost:8000"), _name_of("[::1]:8000"), _name_of("[::1]"), _name_of("")
        ('localhost', '[::1]', '[::1]', '')
    """
    return authority.partition("]")[0] + "]" if authority.startswith("[") else authority.rpartition(":")[0] or authority


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


async def send_refusal(send: Send, refused: RequestRefused) -> None:
    """Send a refusal as JSON, ``{"error": TEXT}``."""
    body = json.dumps({"error": str(refused)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # Parts of the body may still arrive: the server reads nothing else on the connection.
    headers.append((b"connection", b"close"))
    if refused.retry_after_s is not None:
        headers.append((b"retry-after", str(refused.retry_after_s).encode()))
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
