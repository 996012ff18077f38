"""The guard of the forms: a change must come from our own page, by the person who is logged in.

A browser sends Airflow's cookie also with requests from pages of other sites, within the limits of SameSite=Lax. So a
request must not come from another origin, and must have a token from our page. A program with its own login, as
``Authorization: Bearer``, needs no token: no page can make a browser add this header.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.parse
from collections.abc import Collection, Mapping
from typing import Annotated, Final

from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from fastapi import Form, Request

from deepspark_ops.operators.pages.refused import Refused

TOKEN_LIFE_S: Final = 24 * 3600
_PURPOSE: Final = b"deepspark form"


def make_token(key: bytes, user: str, now: float) -> str:
    """Return a token for a person, good for ``TOKEN_LIFE_S`` from ``now``, in seconds since the epoch.

    ``key`` is Airflow's secret of this installation.
    """
    until = int(now) + TOKEN_LIFE_S
    return f"{until}.{_signature(key, user, until)}"


def is_token_of(key: bytes, user: str, token: str, now: float) -> bool:
    """Whether a token was made for a person, and not too long ago."""
    until, _, signature = token.partition(".")
    if not until.isdecimal() or not signature.isascii() or int(until) < now:
        return False
    return hmac.compare_digest(signature, _signature(key, user, int(until)))


def is_foreign(headers: Mapping[str, str], own_hosts: Collection[str]) -> bool:
    """Whether a request comes from a page of another origin, by the browser's headers.

    Browsers say so by ``Sec-Fetch-Site``, over plain HTTP by ``Origin`` alone; programs send neither.

    Args:
        headers: Of the request, by lower-case names.
        own_hosts: Host, and port if it has one, of this server as browsers know it.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site != "same-origin"
    origin = headers.get("origin")
    if origin is None:
        return False
    host = urllib.parse.urlsplit(origin).netloc  # empty of a page whose origin is hidden, "null"
    return not host or host not in own_hosts


def form_token(user: GetUserDep) -> str:
    """Return a token for the person who asks, for the forms of a page."""
    return make_token(_key(), user.get_name(), time.time())


def require_own_form(request: Request, user: GetUserDep, token: Annotated[str, Form()] = "") -> None:
    """Refuse a request without a token from our own page.

    Raises:
        Refused: The request has none.
    """
    hosts = {request.headers.get("host", ""), urllib.parse.urlsplit(conf.get("api", "base_url", fallback="")).netloc}
    if is_foreign(request.headers, hosts):
        msg = "this form was sent from another site; open the page in Airflow and use the form there"
        raise Refused(msg, 403)
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return
    if not is_token_of(_key(), user.get_name(), token, time.time()):
        msg = "this form is too old, or was made for somebody else: load the page again"
        raise Refused(msg, 403)


def _signature(key: bytes, user: str, until: int) -> str:
    return hmac.new(key, b"\n".join([_PURPOSE, user.encode(), str(until).encode()]), hashlib.sha256).hexdigest()


def _key() -> bytes:
    return str(conf.get_mandatory_value("api", "secret_key")).encode()
