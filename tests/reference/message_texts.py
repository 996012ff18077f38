"""The texts in the code as a reader of a message sees texts: one text per literal, values as an ellipsis."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

VALUE = "…"


def message_texts(folders: Iterable[Path]) -> list[str]:
    """Return each text of the Python files below the folders; a value within a text is ``VALUE``."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for folder in folders for path in sorted(folder.rglob("*.py")))
    return [text for tree in trees for node in ast.walk(tree) for text in _texts(node)]


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
