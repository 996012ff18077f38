"""Name, tags and note of a run in the head of ``report.html``, and their change in a report that is written already."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

_HEAD = re.compile(r"<!-- name -->.*?<!-- end of name -->", re.DOTALL)
_END = "<!-- end of name -->"
_TITLE = re.compile(r"<title>.*?(?=: [^:<]*</title>)", re.DOTALL)
"""The title without its last part, the main figure."""


def report_name(name: str, tags: Sequence[str]) -> Markup:
    """Return the first line of the head."""
    words = Markup("").join(Markup(' <span class="tag">{}</span>').format(tag) for tag in tags)
    return Markup("<!-- name --><h1>{}{}</h1>{}").format(name, words, Markup(_END))


def with_name(page: str, name: str, tags: Sequence[str]) -> str:
    """Return the report with another name and other tags; an older report without a place for them is unchanged."""
    if not _HEAD.search(page):
        return page
    named = _HEAD.sub(lambda _: str(report_name(name, tags)), page, count=1)
    return _TITLE.sub(lambda _: f"<title>{escape(name)}", named, count=1)


def with_note(page: str, note: str) -> str:
    """Return the report with a person's note below the name; an older report without a place for it is unchanged."""
    return page.replace(_END, f'{_END}<p class="run-note">{escape(note)}</p>', 1) if note else page
