"""A stage at work in a notebook: a single output of the cell, drawn again and again. Needs no widgets."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from io import StringIO
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

_DRAW_EVERY_S: Final = 0.5
_LINES_KEPT: Final = 20
_WIDTH: Final = 120
_FORMAT: Final = (
    "<pre style=\"white-space:pre;overflow-x:auto;line-height:normal;font-family:Menlo,'DejaVu Sans Mono',consolas,"
    "'Courier New',monospace\">{code}</pre>"
)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookPanel:
    """Draws what ``render`` returns, the last line of the stage and the warnings. Used by one thread."""

    def __init__(self, render: Callable[[], RenderableType]) -> None:
        """Draw nothing yet."""
        self._render = render
        self._lines: deque[Text] = deque(maxlen=_LINES_KEPT)
        self._last = ""
        self._handle: Any = None
        self._drawn = 0.0

    def start(self) -> None:
        """Make the cell's output."""
        from IPython.display import HTML, display

        self._handle = display(HTML(self._html()), display_id=True)

    def note(self, text: str, style: str) -> None:
        """Take a line: the next line replaces a line without a style; a line with a style stays."""
        if style:
            self._lines.append(Text(text, style=style))
        else:
            self._last = text
        if time.monotonic() - self._drawn >= _DRAW_EVERY_S:
            self._draw()

    def stop(self) -> None:
        """Draw the last state."""
        self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML

        self._drawn = time.monotonic()
        self._handle.update(HTML(self._html()))

    def _html(self) -> str:
        console = Console(file=StringIO(), record=True, force_terminal=True, force_jupyter=False, width=_WIDTH)
        console.print(Group(*self._lines, self._render(), Text(self._last, style="dim")), highlight=False)
        return console.export_html(inline_styles=True, code_format=_FORMAT)
