"""Templates use no name that jinja2 leaves undefined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from tests.paths import ROOT

TEMPLATES = sorted(
    path for folder in ("deepspark_ops", "tests") for path in (ROOT / folder).rglob("*.jinja") if path.is_file()
)


def filters_that_read_loop(template: str) -> Iterator[int]:
    """Yield the line of each loop whose filter (``for ... if ...``) reads ``loop``, which exists in the body alone."""
    for loop in Environment().parse(template).find_all(nodes.For):
        if loop.test is None:
            continue
        names = [loop.test] if isinstance(loop.test, nodes.Name) else loop.test.find_all(nodes.Name)
        if any(isinstance(name, nodes.Name) and name.name == "loop" for name in names):
            yield loop.lineno


def test_the_filter_of_a_loop_is_looked_into() -> None:
    assert list(filters_that_read_loop("{% for a in b if not (c and loop.first) %}{{ a }}{% endfor %}")) == [1]
    assert list(filters_that_read_loop("{% for a in b if a %}{{ loop.first }}{% endfor %}")) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_loops_filter_reads_loop(path: Path) -> None:
    assert list(filters_that_read_loop(path.read_text(encoding="utf-8"))) == []
