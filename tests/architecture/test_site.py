"""The docs site: each page is in the menu, links and anchors exist, README's figures stand in the linked pages."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from docs.generate.index_readme import index_readme
from docs.generate.site_files import linked_files, repository_path, with_site_links
from tests.architecture.test_readme import PAGES, README
from tests.paths import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings]
    return {re.sub(r"\s", "-", word.strip().lower()) for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_anchor_is_dead(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        name, mark, anchor = target.partition("#")
        if mark and "://" not in name and (not name or name.endswith(".md")):
            reached = page.parent / name if name else page
            assert anchor in anchors(reached), f"{page.name}: {target}"


def menu_pages(entry: object) -> list[str]:
    """Return the pages of a part of the menu."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    assert isinstance(parts, list | type({}.values()))
    return [page for part in parts for page in menu_pages(part)]


def test_every_page_is_in_the_menu_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = [page for page in menu_pages(settings["nav"]) if not page.startswith("project/")]
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_links_out_of_the_docs_lead_into_the_site() -> None:
    pages = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")}
    files = linked_files(pages)
    assert {"CONTRIBUTING.md", "examples/README.md", "examples/digits/README.md", "examples/own_dag.py"} <= files
    text = "[a](../../examples/own_dag.py) [b](../../CONTRIBUTING.md#add-a-layer) [c](data.md) [d](https://e.org)"
    assert with_site_links("docs/guides/own_layer.md", text) == (
        "[a](../project/examples/own_dag.py.txt) [b](../project/CONTRIBUTING.md#add-a-layer) [c](data.md) [d](https://e.org)"
    )
    assert with_site_links("CONTRIBUTING.md", "[a](docs/guides/data.md)") == "[a](../guides/data.md)"
    assert repository_path("project/examples/README.md") == "examples/README.md"
    assert repository_path("guides/data.md") == "docs/guides/data.md"


@pytest.mark.parametrize("word", sorted(anchors(ROOT / "docs" / "glossary.md") - {"glossary"}))
def test_every_word_of_the_glossary_is_linked_from_a_page(word: str) -> None:
    assert any(f"glossary.md#{word})" in page.read_text(encoding="utf-8") for page in PAGES)


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_figures_of_the_readme_stand_in_the_pages_beside_them() -> None:
    rows = [line.split("|")[1:-1] for line in README.splitlines() if re.match(r"\| .*\| .*\| \[", line)]
    assert len(rows) == 10
    for feature, figures, page in rows:
        (target,) = LINK.findall(page)
        text = (ROOT / target.partition("#")[0]).read_text(encoding="utf-8")
        for number in re.findall(r"\d[\d,.]*\d|\d", feature + figures):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", text), f"{target}: {number}"


def test_readme_of_a_package_index_has_no_relative_link() -> None:
    assert any("://" not in target for target in LINK.findall(README))
    plain = index_readme(README)
    assert [target for target in LINK.findall(plain) if "://" not in target] == []
    assert "Reference" in plain
    linked = index_readme(README, files="https://e.org/a/blob/v1/", pictures="https://e.org/a/raw/v1/")
    targets = LINK.findall(linked)
    assert "https://e.org/a/raw/v1/docs/images/training.png" in targets
    assert len(targets) == len(LINK.findall(README))
    for target in targets:
        path = re.sub(r"^https://e.org/a/(blob|raw)/v1/", "", target).partition("#")[0]
        assert "://" in path or (ROOT / os.fspath(path)).exists(), target
