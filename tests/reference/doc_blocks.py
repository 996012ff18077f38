"""Blocks of Python in pages of the docs, for tests that run the blocks as a reader would."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
"""Lines indented by four blanks, and the empty lines between."""


def python_blocks(page: Path) -> Iterator[str]:
    """Yield the indented blocks of a page that are Python statements, without the indentation."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        code = "\n".join(line[4:] for line in block.splitlines()).strip("\n")
        if code and _is_python(code):
            yield code + "\n"


def _is_python(code: str) -> bool:
    """Return whether a block is Python. A line of a list may parse, too, but has no call, import or attribute."""
    try:
        nodes = ast.walk(ast.parse(code))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Import | ast.ImportFrom | ast.Attribute) for node in nodes)
