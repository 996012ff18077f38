"""Write every generated file; ``--check`` names the stale ones and ends with exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from docs.generate import commands, layers, operators, python, troubleshooting

ROOT = Path(__file__).resolve().parents[2]
FILES: dict[str, Callable[[], str]] = {
    "deepspark_ops/api/calls.pyi": python.stub,
    "deepspark_ops/operators/__init__.pyi": operators.stub,
    "docs/reference/commands.md": commands.page,
    "docs/reference/layers.md": layers.page,
    "docs/reference/operators.md": operators.page,
    "docs/reference/python.md": python.page,
    "docs/troubleshooting.md": troubleshooting.page,
}
"""File -> the function that returns its text."""


def stale_files() -> dict[str, str]:
    """Return the text of each file that differs from the code, by the file's path."""
    texts = {name: write() for name, write in FILES.items()}
    return {
        name: text
        for name, text in texts.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Rewrite the stale files, or name them."""
    stale = stale_files()
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is not what the code says; run: make format", file=sys.stderr)
        return int(bool(stale))
    for name, text in stale.items():
        (ROOT / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
