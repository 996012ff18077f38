"""A stage at work: lines on stderr, on a terminal a bar or the run below the lines; in a notebook a single output."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from deepspark_ops.api.display.notebook_panel import NotebookPanel, in_notebook
from deepspark_ops.processes.job_log import LineHandler
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import counted
from deepspark_ops.tracking.configured import is_configured

_CLOCK = re.compile(r"\bclock=(\d+)")
_TOLD_BY_TABLE = re.compile(r"worker \d+ loss |driver server ")
_DRAWN_PER_S = 4
_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class StageDisplay:
    """Shows a stage at work: lines, and on a terminal a bar below the lines. Used by one thread, in a ``with`` block.

    Attributes:
        is_shown: Whether anything is shown at all.
    """

    def __init__(self, title: str, *, total: int | None = None, is_shown: bool = True) -> None:
        """Name the stage; ``total`` is what the bar counts to, None if that is not known beforehand."""
        self.is_shown = is_shown
        self._console = Console(stderr=True, quiet=not is_shown, force_jupyter=False)
        self._held: list[str] = []
        self._reached = 0
        self._bar: Progress | None = None
        self._drawing: Progress | Live | NotebookPanel | None = None
        self._is_in_notebook = is_shown and in_notebook()
        if self._is_in_notebook or (is_shown and self._console.is_terminal):
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task(title, total=total)
            self._drawing = NotebookPanel(self._bar.get_renderable) if self._is_in_notebook else self._bar

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._drawing:
            self._drawing.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the drawing; show error lines outside the raised message."""
        if self._drawing and not self._is_in_notebook:
            self._drawing.stop()
        message_lines = str(error).splitlines() if error else []
        for line in self._held:
            if line not in message_lines:
                self._print(logging.ERROR, line)
        if self._drawing and self._is_in_notebook:
            self._drawing.stop()

    def line(self, level: int, text: str) -> None:
        """Show a line of a job. Error lines wait, since the last error lines are the job's message at the end."""
        if level < logging.INFO:
            return
        if level >= logging.ERROR:
            self._held.append(text)
            return
        for held in self._held:
            self._print(logging.ERROR, held)
        self._held.clear()
        self._move_bar(text)
        self._print(level, text)

    def _move_bar(self, text: str) -> None:
        """Read how far the job is from its own words: ``clock=200``, or ``3,000/10,000``."""
        if self._bar is None:
            return
        if clock := _CLOCK.search(text):
            # Workers report out of step; the bar shows the farthest.
            self._reached = max(self._reached, int(clock[1]))
            self._bar.update(self._task, completed=self._reached)
        elif count := counted(text):
            self.count(*count)

    def count(self, n_done: int, total: int) -> None:
        """Move the bar without a line."""
        if self._bar is not None:
            self._bar.update(self._task, completed=n_done, total=total)
        if isinstance(self._drawing, NotebookPanel):
            self._drawing.note(f"{n_done}/{total}", "")

    def _print(self, level: int, text: str) -> None:
        style = _STYLES.get(level, "")
        if isinstance(self._drawing, NotebookPanel):
            self._drawing.note(text, style)
        else:
            self._console.print(escape(text), style=style, highlight=False, soft_wrap=True)


def show_telling(tell: Callable[[Path, LineHandler], None], folder: Path, *, is_shown: bool = True) -> None:
    """Notify a configured MLflow of a run's folder or a model's, and show the lines."""
    if is_configured(os.environ):
        with StageDisplay("MLflow", is_shown=is_shown) as display:
            tell(folder, display.line)


class TrainDisplay(StageDisplay):
    """Shows a run: on a terminal drawn live from the events, below the lines outside the table."""

    def __init__(self, run_dir: Path, *, max_iter: int, is_shown: bool = True) -> None:
        """Look at the events of ``run_dir`` from now on."""
        super().__init__("train", total=max_iter, is_shown=is_shown)
        if self._drawing is None:
            return
        from deepspark_ops.api.display.live_view import LiveView
        from deepspark_ops.run_view.event_tail import EventTail

        self._tail = EventTail(RunPaths(run_dir).events)
        self._view = LiveView(max_iter=max_iter)
        self._bar = None
        self._drawing = (
            NotebookPanel(self._draw)
            if self._is_in_notebook
            else Live(console=self._console, get_renderable=self._draw, refresh_per_second=_DRAWN_PER_S)
        )

    def line(self, level: int, text: str) -> None:
        """Show a line, unless the table shows the content."""
        if isinstance(self._drawing, NotebookPanel) or self._drawing is None or not _TOLD_BY_TABLE.match(text):
            super().line(level, text)

    def _draw(self) -> RenderableType:
        """Return the view after the newest events; called by a single thread at a time."""
        for event in self._tail.read():
            self._view.take(event)
        return self._view
