"""README.md as a package index shows it: links to files of the repository become addresses, or plain text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urljoin

ROOT = Path(__file__).resolve().parents[2]
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)\n*")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def index_readme(text: str, *, files: str = "", pictures: str = "") -> str:
    """Return README's text without relative links.

    Args:
        text: README.md.
        files: Address below which the repository's files can be read, with a slash at its end; without one a link
            becomes its words, and a picture is left out.
        pictures: The same for pictures as bytes.
    """

    def shown(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if "://" in target or target.startswith("#"):
            return match[0]
        return f"[{words}]({urljoin(files, target)})" if files else words

    def drawn(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        return f"![{match[1]}]({urljoin(pictures, match[2])})\n\n" if pictures else ""

    return _LINK.sub(shown, _PICTURE.sub(drawn, text))


def main() -> int:
    """Rewrite README.md of the present folder, by the address ``Repository`` of its pyproject.toml if there is one."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository", "").rstrip("/")
    tag = f"v{project['version']}"
    files, pictures = (f"{address}/{kind}/{tag}/" if address else "" for kind in ("blob", "raw"))
    readme = Path("README.md")
    readme.write_text(index_readme(readme.read_text("utf-8"), files=files, pictures=pictures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
