"""axe-core in a page of tests/browser.py: what a person with a screen reader, a keyboard or weak eyes cannot use."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from tests.browser import Page

_SCRIPT = Path(sys.prefix, "axe", "axe_playwright_python", "axe.min.js")
_RUN = """axe.run({resultTypes: ['violations']}).then(({violations}) => violations.flatMap(
  ({id, impact, help, nodes}) => nodes.map(({target, any, all, none}) =>
    `${impact} ${id}: ${target.join(' ')}: ${[...any, ...all, ...none].map(({message}) => message)[0] ?? help}`)))"""


def violations(page: Page) -> list[str]:
    """Return what axe-core objects to on the page: impact, rule, selector and reason of each element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    return list(page.evaluate(_RUN))


@cache
def _axe() -> str:
    assert _SCRIPT.exists(), f"{_SCRIPT} is missing: make test-browser brings it"
    return _SCRIPT.read_text()
