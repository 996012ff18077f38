"""HTTP headers of the pages: allowed scripts and caching."""

from __future__ import annotations

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


def page_headers(nonce: str, *, has_form: bool = False) -> dict[str, str]:
    """Return the headers of a page with scripts: only scripts with the nonce run, and connect to this server alone.

    Args:
        nonce: Of the page's scripts and styles.
        has_form: Whether it has a form that this server answers.
    """
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
