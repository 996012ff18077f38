"""A run in progress, for a terminal: a row per worker, the server's line, the progress. Drawn from events alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deepspark_ops.events import NOT_OUTPUTS, Event
from deepspark_ops.run_view.progress import RunProgress, WorkerStanding
from deepspark_ops.run_view.series import SECONDS, number_of

_BAR_WIDTH = 40
_WIDE = 125
"""Columns that the whole table takes."""
_OTHER_LINES = 13
"""Lines that are no worker's; the table leaves room for them, so that the lowest of them stay on the screen."""
_COLUMNS = {
    "clock": "clock", "loss": "loss", "lr": "lr", "images/s": "img/s", "computing": "comp", "waiting": "wait",
    "exchanging": "exch", "tau": "tau", "staleness": "stale", "distance": "dist",
}  # fmt: skip
"""Headings after the worker's, on a wide and on a narrow terminal."""


class LiveView:
    """Takes events in order and draws the state of the run. Not thread-safe."""

    def __init__(self, *, max_iter: int, seconds: Callable[[], float] = time.monotonic) -> None:
        """Start with no workers; ``max_iter`` is the clock at the end of the run, ``seconds`` what time it is."""
        self._asked_for = max_iter
        self._seconds = seconds
        self._created = seconds()
        self._progress = RunProgress()

    def take(self, event: Event) -> None:
        """Note one event."""
        self._progress.take(event)

    @property
    def _max_iter(self) -> int:
        return self._asked_for if self._progress.max_iter is None else self._progress.max_iter

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw; a narrow terminal gets shares of the time without seconds."""
        parts: list[RenderableType] = []
        workers = self._progress.workers
        if workers:
            most = max(1, options.size.height - _OTHER_LINES)
            parts.append(self._table(options.max_width >= _WIDE, most))
            if len(workers) > most:
                parts.append(Text(f"and {len(workers) - most:,} more workers", style="dim"))
        if self._progress.server:
            parts.append(_server_line(self._progress.server))
        if self._progress.newest_test is not None:
            parts.append(Text(_evaluation(self._progress.newest_test), style="cyan"))
        yield Group(*parts, self._bar())

    def _table(self, is_wide: bool, most: int) -> Table:
        padding = (0, 1) if is_wide else (0, 0)
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=self._progress.title, title_justify="left", show_footer=True,
            padding=padding,
        )  # fmt: skip
        mean = self._progress.mean_loss()
        footers = {
            "loss": "" if mean is None else f"{mean:.4f}",
            "images/s": f"{self._progress.images_per_s():,.0f}",
        }
        table.add_column("worker", footer="all", no_wrap=True)
        for name, short in _COLUMNS.items():
            heading = name if is_wide else short
            table.add_column(heading, justify="right", footer=footers.get(name, ""), no_wrap=True)
        for worker, row in sorted(self._progress.workers.items())[:most]:
            worker_text = Text(str(worker))
            if row.state != "training":
                word = "given up" if row.ending == "given_up" else row.state
                worker_text.append(f" {word}", style="red" if row.state == "lost" else "dim")
            table.add_row(worker_text, *_cells(row, is_wide), style="dim" if row.state == "lost" else "")
        return table

    def _bar(self) -> Table:
        line = Table.grid(padding=(0, 1))
        total = max(1, self._max_iter)
        n_done = min(self._progress.clock, total)
        words = f"{n_done:,} of {self._max_iter:,} minibatches{self._time_left()}{self._preparing()}"
        line.add_row(ProgressBar(total=total, completed=n_done, width=_BAR_WIDTH), words)
        return line

    def _preparing(self) -> str:
        """Say why nothing moves yet, and that time does: Spark, TensorFlow and the graph take their time."""
        if self._progress.has_trained:
            return ""
        activity = "workers are building the net" if self._progress.workers else "Spark and its workers are starting"
        return f", {activity}, {self._seconds() - self._created:.0f} s"

    def _time_left(self) -> str:
        seconds_left = self._progress.seconds_left(self._max_iter)
        return (
            "" if seconds_left is None else f", about {round(seconds_left) // 60}:{round(seconds_left) % 60:02d} left"
        )


def _cells(worker: WorkerStanding, has_seconds: bool) -> list[str]:
    """Return a worker's cells after its name; values without a report stay empty."""
    if not worker.report:
        return [""] * len(_COLUMNS)
    shares = {name: worker.shares().get(name, 0.0) for name in SECONDS}
    spent = [f"{worker.number(n):.2f} s {s:4.0%}" if has_seconds else f"{s:.0%}" for n, s in shares.items()]
    return [
        f"{worker.clock:,}",
        f"{worker.number('loss'):.4f}",
        f"{worker.number('learning_rate'):.3g}",
        f"{worker.number('images_per_s'):,.0f}",
        *spent,
        str(worker.exchange.get("comm_period", "")),
        f"{worker.number('staleness'):.1f}" if "staleness" in worker.report else "",
        f"{worker.number('distance'):.3g}" if "distance" in worker.report else "",
    ]


def _server_line(data: Mapping[str, Any]) -> Text:
    text = Text("center: ")
    text.append(f"{_of(data, 'exchanges_per_s'):,.1f} exchanges/s, ")
    text.append(f"{_of(data, 'bytes_per_s') / 1e6:,.1f} MB/s")
    if "staleness" in data:
        text.append(f", staleness {_of(data, 'staleness'):.2f}")
    if "overlaps" in data:
        text.append(f", overlaps {data['overlaps']}")
    if "lost_updates" in data:
        lost = _of(data, "lost_updates")
        text.append(f", lost updates {lost:.3g}", style="yellow" if lost > 0.0 else "")
    return text


def _evaluation(event: Event) -> str:
    numbers = {name: value for name, value in event.data.items() if name not in NOT_OUTPUTS}
    shown = " ".join(f"{name}={value:.4f}" for name, value in numbers.items() if isinstance(value, float))
    return f"test at clock={event.clock:,}: {shown}"


def _of(data: Mapping[str, Any], name: str) -> float:
    return number_of(data.get(name)) or 0.0
