"""Runs as they are read again and again: each one's events are read once, then what has come since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.event_tail import EventTail
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.series import RunSeries

RUNS_KEPT: Final = 8
"""Runs whose numbers stay in memory; one of 100,000 events takes about 12 MB."""


class RunReading:
    """One run's events so far. Not thread-safe: hold ``lock`` from ``refresh`` to the last look at the numbers.

    Attributes:
        lock: Guards everything else.
        progress: How the run stands.
        series: Its lines.
    """

    def __init__(self, run_dir: Path) -> None:
        """Read nothing yet."""
        self.lock = threading.Lock()
        self._tail = EventTail(RunPaths(run_dir).events, from_start=True)
        self.progress = RunProgress()
        self.series = RunSeries()

    @property
    def token(self) -> str:
        """Up to where the events were read; for a reader that comes back."""
        return self._tail.place.token()

    def refresh(self) -> None:
        """Read what has come.

        Raises:
            OSError: The file is there and cannot be read.
        """
        while True:
            before = self._tail.place
            events, is_new = self._tail.read_placed()
            if is_new:
                self.progress, self.series = RunProgress(), RunSeries()
            for event, at in events:
                self.progress.take(event, at)
                self.series.take(event, at)
            if self._tail.place == before:
                return

    def offset_of(self, token: str) -> int | None:
        """Return the offset that a reader has seen everything up to.

        None if it must begin anew: the token is none of this file's, or what it saw was dropped since.
        """
        first, _, offset = token.partition(".")
        if first != self.token.partition(".")[0] or not offset.isdecimal():
            return None
        return int(offset) if self.series.cut_at <= int(offset) <= self._tail.place.offset else None


class RunReadings:
    """The readings of the runs that were asked for last. Thread-safe."""

    def __init__(self, n_kept: int = RUNS_KEPT) -> None:
        """Keep the last ``n_kept``."""
        self._kept: OrderedDict[Path, RunReading] = OrderedDict()
        self._n_kept = n_kept
        self._lock = threading.Lock()

    def of(self, run_dir: Path) -> RunReading:
        """Return the reading of a run, as it was left the last time."""
        with self._lock:
            reading = self._kept.pop(run_dir, None) or RunReading(run_dir)
            self._kept[run_dir] = reading
            while len(self._kept) > self._n_kept:
                self._kept.popitem(last=False)
            return reading
