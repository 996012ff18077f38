"""Answers of the pages: HTML, or JSON with the same content; HTTP headers: allowed scripts and caching."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from deepspark_ops.operators.pages.addresses import URL_PREFIX
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.airflow_words import airflow_words

PLAIN_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-cache"}
# The report holds class names and file names of the user's data. It needs no script, so none runs, and the sandbox
# gives it an origin of its own: nothing in it could act with the reader's login.
REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
    **PLAIN_HEADERS,
}
FILE_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", **PLAIN_HEADERS}
"""A file that is saved and not shown."""
ASSET_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, max-age=31536000, immutable"}


def _page_headers(nonce: str, *, has_form: bool) -> dict[str, str]:
    """Return the headers of a page with scripts: only scripts with the nonce run, and connect to this server alone."""
    policy = {
        "default-src": "'none'",
        "script-src": f"'nonce-{nonce}'",
        "style-src": f"'nonce-{nonce}'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'" if has_form else "'none'",
        "frame-ancestors": "'self'",
    }
    return {"Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()), **PLAIN_HEADERS}


def shown(
    request: Request,
    page: Callable[..., str],
    answer: Mapping[str, Any],
    status: int = 200,
    *,
    has_form: bool = True,
    **options: Any,
) -> Response:
    """Answer as a page, or with ``?format=json`` as JSON.

    Args:
        request: What is answered.
        page: Returns the answer as HTML: ``page(answer, nonce=..., site=..., **options)``. ``nonce`` is of the page's
            scripts and styles; ``site`` is the path that Airflow is served under, without a slash at its end.
        answer: What the page shows.
        status: HTTP status.
        has_form: Whether the page may have a form that this server answers.
        options: For the page alone.
    """
    if wants_json(request):
        return JSONResponse(answer, status_code=status, headers=PLAIN_HEADERS)
    nonce = secrets.token_urlsafe(16)
    text = page(answer, nonce=nonce, site=site_of(request), **options)
    return HTMLResponse(text, status_code=status, headers=_page_headers(nonce, has_form=has_form))


def show_refusal(request: Request, error: Exception) -> Response:
    """Answer a refused request with a message that leads back to the list above the route's other pages."""
    assert isinstance(error, Refused)
    section = request.scope["route"].path.split("/")[1]
    return shown(request, _message_page, {"error": airflow_words(str(error))}, error.status, section=section)


def wants_json(request: Request) -> bool:
    """Whether the JSON is asked for."""
    return request.query_params.get("format") == "json"


def site_of(request: Request) -> str:
    """Return the path of Airflow's own pages: the path in its ``base_url``, often empty."""
    return str(request.scope.get("root_path", "")).removesuffix(URL_PREFIX)


def _message_page(answer: Mapping[str, Any], *, nonce: str, site: str, section: str) -> str:
    return template("message.html.jinja").render(
        title=section.capitalize(), message=answer["error"], nonce=nonce, site=f"{site}{URL_PREFIX}", here=section
    )
