"""A run as it happens, for a terminal: a row per worker, the server's line, how far it is. Drawn from events alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deepspark_ops.events import DRIVER, Event

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
_SHARES = ("compute_s", "data_s", "exchange_s")


@dataclass
class _WorkerRow:
    """What is last known of a worker.

    Attributes:
        clock: Of its last loss line.
        loss: Of that line: its numbers.
        exchange: Numbers of its last exchange summary.
        state: ``joined``, ``training`` or ``lost``.
    """

    clock: int = 0
    loss: Mapping[str, Any] = field(default_factory=dict)
    exchange: Mapping[str, Any] = field(default_factory=dict)
    state: str = "joined"


class LiveView:
    """Takes events in their order and draws the state of the run. Not thread-safe."""

    def __init__(self, *, max_iter: int, seconds: Callable[[], float] = time.monotonic) -> None:
        """Start with no workers; ``max_iter`` is the clock at the end of the run, ``seconds`` what time it is."""
        self._max_iter = max_iter
        self._seconds = seconds
        self._created = seconds()
        self._title = ""
        self._workers: dict[int, _WorkerRow] = {}
        self._server: Mapping[str, Any] = {}
        self._test = ""
        self._clock = 0
        self._began: tuple[float, int] | None = None
        self._now: tuple[float, int] | None = None

    def take(self, event: Event) -> None:
        """Note one event."""
        self._clock = max(self._clock, event.clock)
        match event.kind:
            case "stage" if event.data.get("status") == "started":
                self._begin(event.data)
            case "worker_joined":
                self._row(event).state = "joined"
            case "worker_lost":
                self._row(event).state = "lost"
            case "loss":
                self._take_loss(event)
            case "exchange":
                self._row(event).exchange = event.data
            case "server":
                self._server = event.data
            case "evaluation":
                self._test = _evaluation(event)

    def _begin(self, data: Mapping[str, Any]) -> None:
        self._max_iter = int(data.get("max_iter", self._max_iter))
        workers = data.get("n_workers", "?")
        self._title = f"{data.get('net') or 'net'}: {data.get('strategy', '')}, {workers} workers"

    def _take_loss(self, event: Event) -> None:
        row = self._row(event)
        row.state, row.clock, row.loss = "training", event.clock, event.data
        self._now = (event.time, self._clock)
        if self._began is None:
            self._began = self._now

    def _row(self, event: Event) -> _WorkerRow:
        if event.worker == DRIVER:
            return _WorkerRow()
        return self._workers.setdefault(event.worker, _WorkerRow())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw; a narrow terminal gets shares of the time without seconds."""
        parts: list[RenderableType] = []
        if self._workers:
            most = max(1, options.size.height - _OTHER_LINES)
            parts.append(self._table(options.max_width >= _WIDE, most))
            if len(self._workers) > most:
                parts.append(Text(f"and {len(self._workers) - most:,} more workers", style="dim"))
        if self._server:
            parts.append(_server_line(self._server))
        if self._test:
            parts.append(Text(self._test, style="cyan"))
        yield Group(*parts, self._progress())

    def _table(self, is_wide: bool, most: int) -> Table:
        rows = [self._workers[worker] for worker in sorted(self._workers)]
        padding = (0, 1) if is_wide else (0, 0)
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=self._title, title_justify="left", show_footer=True,
            padding=padding,
        )  # fmt: skip
        speed = sum(_number(row.loss.get("images_per_s")) for row in rows if row.state == "training")
        losses = [_number(row.loss["loss"]) for row in rows if "loss" in row.loss]
        footers = {"loss": f"{sum(losses) / len(losses):.4f}" if losses else "", "images/s": f"{speed:,.0f}"}
        table.add_column("worker", footer="all", no_wrap=True)
        for name, short in _COLUMNS.items():
            heading = name if is_wide else short
            table.add_column(heading, justify="right", footer=footers.get(name, ""), no_wrap=True)
        for worker in sorted(self._workers)[:most]:
            row = self._workers[worker]
            who = Text(str(worker))
            if row.state != "training":
                who.append(f" {row.state}", style="red" if row.state == "lost" else "dim")
            table.add_row(who, *_cells(row, is_wide), style="dim" if row.state == "lost" else "")
        return table

    def _progress(self) -> Table:
        line = Table.grid(padding=(0, 1))
        total = max(1, self._max_iter)
        done = min(self._clock, total)
        words = f"{done:,} of {self._max_iter:,} minibatches{self._time_left()}{self._preparing()}"
        line.add_row(ProgressBar(total=total, completed=done, width=_BAR_WIDTH), words)
        return line

    def _preparing(self) -> str:
        """Say why nothing moves yet, and that time does: Spark, TensorFlow and the graph take their time."""
        if self._now is not None:
            return ""
        what = "workers are building the net" if self._workers else "Spark and its workers are starting"
        return f", {what}, {self._seconds() - self._created:.0f} s"

    def _time_left(self) -> str:
        if self._began is None or self._now is None:
            return ""
        seconds, steps = self._now[0] - self._began[0], self._now[1] - self._began[1]
        if seconds <= 0 or steps <= 0 or self._clock >= self._max_iter:
            return ""
        left = (self._max_iter - self._now[1]) * seconds / steps
        return f", about {round(left) // 60}:{round(left) % 60:02d} left"


def _cells(row: _WorkerRow, has_seconds: bool) -> list[str]:
    """Return a worker's cells after its name; what was not reported yet stays empty."""
    loss = row.loss
    if not loss:
        return [""] * len(_COLUMNS)
    whole = sum(_number(loss.get(name)) for name in _SHARES)
    spent = [_number(loss.get(name)) for name in _SHARES]
    shares = [f"{s:.2f} s {s / (whole or 1.0):4.0%}" if has_seconds else f"{s / (whole or 1.0):.0%}" for s in spent]
    return [
        f"{row.clock:,}",
        f"{_number(loss.get('loss')):.4f}",
        f"{_number(loss.get('learning_rate')):.3g}",
        f"{_number(loss.get('images_per_s')):,.0f}",
        *shares,
        str(row.exchange.get("comm_period", "")),
        f"{_number(loss['staleness']):.1f}" if "staleness" in loss else "",
        f"{_number(loss['distance']):.3g}" if "distance" in loss else "",
    ]


def _server_line(data: Mapping[str, Any]) -> Text:
    text = Text("center: ")
    text.append(f"{_number(data.get('exchanges_per_s')):,.1f} exchanges/s, ")
    text.append(f"{_number(data.get('bytes_per_s')) / 1e6:,.1f} MB/s")
    if "staleness" in data:
        text.append(f", staleness {_number(data['staleness']):.2f}")
    if "overlaps" in data:
        text.append(f", overlaps {data['overlaps']}")
    if "lost_updates" in data:
        lost = _number(data["lost_updates"])
        text.append(f", lost updates {lost:.3g}", style="yellow" if lost > 0.0 else "")
    return text


def _evaluation(event: Event) -> str:
    numbers = {name: value for name, value in event.data.items() if name not in ("test_net", "seconds")}
    shown = " ".join(f"{name}={value:.4f}" for name, value in numbers.items() if isinstance(value, float))
    return f"test at clock={event.clock:,}: {shown}"


def _number(value: Any) -> float:
    """Return a number of an event; events have NaN and infinities as text."""
    return float(value) if value is not None else 0.0
