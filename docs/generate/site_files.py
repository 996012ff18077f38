"""Hook of mkdocs: files of the repository that pages link to become files of the site, below ``project/``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_FOLDER = "project"


def site_path(target: str) -> str:
    """Return a file's place in the site: ``docs/a.md`` -> ``a.md``, ``LICENSE`` -> ``project/LICENSE``.

    A text that is no page, such as a script, gets the ending ``.txt``, so that a browser shows the text.
    """
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    name = target if target.endswith(".md") else f"{target}.txt"
    return f"{_FOLDER}/{name}"


def repository_path(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    return page.removeprefix(f"{_FOLDER}/") if page.startswith(f"{_FOLDER}/") else f"docs/{page}"


def linked_files(pages: Mapping[str, str]) -> set[str]:
    """Return the files outside of docs/ that pages link to, those of linked pages included.

    Args:
        pages: Path in the repository -> text.
    """
    waiting, files = dict(pages), set[str]()
    while waiting:
        page, text = waiting.popitem()
        for target in _targets(page, text):
            if target in files or target.startswith("docs/") or not (ROOT / target).is_file():
                continue
            files.add(target)
            if target.endswith(".md"):
                waiting[target] = (ROOT / target).read_text(encoding="utf-8")
    return files


def _targets(page: str, text: str) -> list[str]:
    folder = os.path.dirname(page)
    return [os.path.normpath(os.path.join(folder, match[2])) for match in _LINK.finditer(text) if "://" not in match[2]]


def with_site_links(page: str, text: str) -> str:
    """Return a page's text with links as the site has them; a link to a folder becomes its text alone.

    Args:
        page: Path of the page in the repository.
        text: Markdown.
    """
    folder, own_folder = os.path.dirname(page), os.path.dirname(site_path(page))

    def moved(match: re.Match[str]) -> str:
        if "://" in match[2] or match[2].startswith("mailto:"):
            return match[0]
        target = os.path.normpath(os.path.join(folder, match[2]))
        return f"{match[1]}{os.path.relpath(site_path(target), own_folder or '.')}{match[3]}"

    return _LINK.sub(moved, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the linked files of the repository."""
    from mkdocs.structure.files import File  # of an environment that the tests do not have

    pages = {repository_path(file.src_uri): file.content_string for file in files.documentation_pages()}
    for target in sorted(linked_files(pages)):
        files.append(File.generated(config, site_path(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page."""
    return with_site_links(repository_path(page.file.src_uri), markdown)
