"""Finds block, field and layer of a place in a prototxt's text. Used for error messages, not to parse.

The scan never fails: broken text gives the blocks that can be recognised. It is iterative and linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["field", "value"]

_TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?)
  | (?P<word>[-+]?[A-Za-z0-9_.][A-Za-z0-9_.+-]*)
  | (?P<mark>\S)
    """,
    re.VERBOSE,
)
_LAYER_FIELDS = ("layer", "layers")


@dataclass
class Block:
    """One ``name { ... }`` of the text; the root block has no name and covers everything.

    Attributes:
        name: Field name before the brace.
        parent: The enclosing block, None for the root.
        start: Offset of the field name.
        stop: Offset one past the closing brace; the text's length if it never closes.
        closed: Whether a closing brace was found.
        position: 1-based count of this block among its parent's blocks of the same name.
        label: Value of the block's own ``name: "..."``, empty if there is none.
    """

    name: str
    parent: Block | None
    start: int
    stop: int
    closed: bool = False
    position: int = 1
    label: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    def path(self) -> tuple[Block, ...]:
        """Blocks from below the root down to this block; empty for the root."""
        blocks: list[Block] = []
        block: Block | None = self
        while block is not None and block.parent is not None:
            blocks.append(block)
            block = block.parent
        return tuple(reversed(blocks))

    def field_path(self) -> tuple[str, ...]:
        """Field names from the root message to this block."""
        return tuple(block.name for block in self.path())


@dataclass(frozen=True)
class Token:
    """One token of the text.

    Attributes:
        block: The block that holds it.
        field_name: The field it is the name of, or a value of.
        role: Whether the token is the field's name or (part of) its value.
        start: Offset of the token.
        text: The token as written.
    """

    block: Block
    field_name: str
    role: Role
    start: int
    text: str


@dataclass(frozen=True)
class Scan:
    """Result of a pass over a text: ``tokens`` ascending by offset, and every block, the root first."""

    tokens: tuple[Token, ...]
    blocks: tuple[Block, ...]

    def at(self, offset: int) -> Token | None:
        """Return the name or value token that covers ``offset``, None if there is none."""
        for token in self.tokens:
            if token.start <= offset < token.start + len(token.text):
                return token
        return None

    def unclosed(self) -> Block | None:
        """Return the innermost block that is never closed, None if all are."""
        return next((b for b in reversed(self.blocks) if not b.closed and b.parent is not None), None)


def scan_prototxt(text: str) -> Scan:
    """Find every block, field name and value of ``text`` without judging them."""
    return _Scanner(text).run()


def offset_of(text: str, line: int, column: int) -> int:
    """Return the offset of a 1-based line and column; columns past the end of a line count as its end."""
    start = 0
    for _ in range(line - 1):
        end = text.find("\n", start)
        if end < 0:
            break
        start = end + 1
    end = text.find("\n", start)
    line_end = len(text) if end < 0 else end
    return min(start + max(column, 1) - 1, line_end)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the 1-based line and column of an offset."""
    line = text.count("\n", 0, offset) + 1
    return line, offset - (text.rfind("\n", 0, offset) + 1) + 1


def layer_of(block: Block) -> tuple[Block | None, tuple[str, ...]]:
    """Return the enclosing layer block, if any, and the field names from it (else from the root) to ``block``."""
    path = block.path()
    for index, candidate in enumerate(path):
        if candidate.name in _LAYER_FIELDS:
            inner = [b.name for b in path[index + 1 :]]
            is_v0 = candidate.name == "layers" and inner[:1] == ["layer"]
            return candidate, tuple(inner[1:] if is_v0 else inner)
    return None, block.field_path()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._root = Block("", None, 0, len(text), closed=True)
        self._block = self._root
        self._blocks = [self._root]
        self._tokens_found: list[Token] = []
        self._field = ""
        self._field_start = 0
        self._expect_value = False
        self._in_list = False

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        for match in _TOKEN.finditer(self._text):
            kind = match.lastgroup or ""
            if kind != "comment":
                yield kind, match.group(), match.start()

    def run(self) -> Scan:
        for kind, token, start in self._tokens():
            if kind == "mark":
                self._mark(token, start)
            elif self._expect_value or kind == "string":
                self._value(kind, token, start)
            else:
                self._field, self._field_start = token, start
                self._tokens_found.append(Token(self._block, token, "field", start, token))
        return Scan(tuple(self._tokens_found), tuple(self._blocks))

    def _value(self, kind: str, token: str, start: int) -> None:
        self._tokens_found.append(Token(self._block, self._field, "value", start, token))
        if kind == "string" and self._field == "name" and self._expect_value:
            self._label(token.strip("\"'"))
        self._expect_value = self._in_list

    def _label(self, label: str) -> None:
        block = self._block
        block.label = block.label or label
        # V0 files write the layer's name one level down: layers { layer { name: "x" } }
        if block.name == "layer" and block.parent is not None and block.parent.name == "layers":
            block.parent.label = block.label

    def _mark(self, token: str, start: int) -> None:
        if token == ":":
            self._expect_value = True
        elif token in "{<":
            self._open()
        elif token in "}>":
            self._close(start + 1)
        elif token == "[":
            self._in_list = self._expect_value = True
        elif token == "]":
            self._in_list = self._expect_value = False
        elif token not in ",;" and self._expect_value:
            self._value("mark", token, start)

    def _open(self) -> None:
        parent = self._block
        position = parent.counts[self._field] = parent.counts.get(self._field, 0) + 1
        self._block = Block(self._field, parent, self._field_start, len(self._text), position=position)
        self._blocks.append(self._block)
        self._expect_value = self._in_list = False

    def _close(self, stop: int) -> None:
        self._expect_value = self._in_list = False
        if self._block.parent is not None:
            self._block.stop, self._block.closed = stop, True
            self._field = ""
            self._block = self._block.parent
