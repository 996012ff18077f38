"""README.md says what is there: targets, commands, files, layers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deepspark_ops.command import cli
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(ROOT.glob("examples/*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):.*## ", MAKEFILE, re.MULTILINE))


@pytest.mark.airflow
def test_generated_files_are_what_the_code_says() -> None:
    from docs.generate.__main__ import stale_files  # imports Airflow

    assert sorted(stale_files()) == [], "run: make format"


def test_every_make_target_is_explained_and_every_one_named_exists() -> None:
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))}
    assert named == make_targets()
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == make_targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def commands(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split() for line in re.findall(r"^    \.venv/bin/deepspark (.*)$", text, re.MULTILINE)]


@cache
def help_of(stage: str) -> str:
    result = CliRunner().invoke(cli.app, [stage, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_shown_commands_use_options_and_files_that_exist(page: Path) -> None:
    for stage, positional, *options in commands(page):
        shown = help_of(stage)
        for option in options:
            if option.startswith("--"):
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown), f"{stage} {option}"
        if positional.startswith("examples/"):
            assert (ROOT / positional).is_file(), positional


@pytest.mark.parametrize(
    ("page", "least"), [("architecture.md", 20), ("contributing/where_to_change.md", 80), ("contributing/parts.md", 2)]
)
def test_files_that_an_architecture_page_names_exist(page: str, least: int) -> None:
    named = re.findall(r"`((?:caffe_import|deepspark_ops)/[\w/.]+)`", (ROOT / "docs" / page).read_text())
    assert len(named) > least
    assert [name for name in named if not (ROOT / name).exists()] == []
