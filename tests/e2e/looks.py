"""Checks of the appearance of every page in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.axe import violations
from tests.browser import Page

TRACES = "[...document.querySelectorAll('.plot')].filter(plot => plot.querySelector('.scatterlayer .trace')).length"
"""An expression: how many charts have lines."""
WIDTHS = ((1280, 900), (390, 844))
_CHARTS = "[...document.querySelectorAll('.plot .main-svg')]"
FITS = f"{_CHARTS}.every(svg => svg.clientWidth === svg.closest('.plot').clientWidth)"
"""A chart follows the width of its page a moment later."""


def assert_looks(page: Page, name: str) -> None:
    """Light and dark differ and are accessible, and at 390 px, a telephone's width, nothing is scrolled sideways.

    Args:
        page: Shows a page of ours.
        name: Of the pictures, ``NAME-light-1280.png`` and so on, which are kept if ``DEEPSPARK_TEST_SHOTS`` names a
            folder, for somebody to look at.
    """
    backgrounds: dict[str, Any] = {}
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.wait_until(f"document.documentElement.dataset.theme === '{scheme}'")
        backgrounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for width, height in WIDTHS:
            page.resize(width, height)
            page.wait_until(f"window.innerWidth === {width} && {FITS}")
            keep_picture(page, f"{name}-{scheme}-{width}.png")
            scrolled = page.evaluate("document.documentElement.scrollWidth")
            assert scrolled <= width, f"{name} is {scrolled} px wide at {width} px"
        objections = violations(page)
        assert not objections, "\n".join((f"{name}, {scheme}:", *objections))
    assert backgrounds["light"] != backgrounds["dark"]
    page.prefer("light")
    page.resize(*WIDTHS[0])


def assert_accessible(page: Page) -> None:
    """With every detail open, axe-core objects to nothing, in light and in dark."""
    page.evaluate("document.querySelectorAll('details:not([hidden])').forEach((details) => { details.open = true; })")
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.wait_until(f"(document.documentElement.dataset.theme ?? '{scheme}') === '{scheme}'")  # a file has none
        objections = violations(page)
        assert not objections, "\n".join((f"{page.evaluate('location.href')}, {scheme}:", *objections))
    page.prefer("light")


def keep_picture(page: Page, name: str) -> None:
    """Keep a picture of the page if ``DEEPSPARK_TEST_SHOTS`` names a folder."""
    if folder := os.environ.get("DEEPSPARK_TEST_SHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(Path(folder, name))
