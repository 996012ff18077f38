"""Readings of runs that are refreshed again and again: each event is read once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.event_tail import EventTail
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.series import RunSeries
from deepspark_ops.run_view.weights import WatchedWeights

RUNS_KEPT: Final = 8
"""Runs in memory; a run of 100,000 events takes about 12 MB."""


class RunReading:
    """Events of a run so far. Not thread-safe: hold ``lock`` from ``refresh`` until the numbers are no longer read.

    Attributes:
        lock: Guards everything else.
        progress: Progress of the run.
        series: Lines of the run.
        weights: Weights by blob of a watched run.
    """

    def __init__(self, run_dir: Path) -> None:
        """Read nothing yet."""
        self.lock = threading.Lock()
        self._tail = EventTail(RunPaths(run_dir).events, from_start=True)
        self.progress = RunProgress()
        self.series = RunSeries()
        self.weights = WatchedWeights()

    @property
    def token(self) -> str:
        """Position in the events up to which the run was read; for a reader that continues later."""
        return self._tail.position.token()

    def refresh(self) -> None:
        """Read new events.

        Raises:
            OSError: The file exists and cannot be read.
        """
        while True:
            old_position = self._tail.position
            events, is_new = self._tail.read_placed()
            if is_new:
                self.progress, self.series, self.weights = RunProgress(), RunSeries(), WatchedWeights()
            for event, at in events:
                self.progress.take(event, at)
                self.series.take(event, at)
                self.weights.take(event)
            if self._tail.position == old_position:
                return

    def offset_of(self, token: str) -> int | None:
        """Return the offset up to which a reader has seen all events.

        None if the reader must start again: the token belongs to another file, or events before the offset were
        dropped.
        """
        first, _, offset = token.partition(".")
        if first != self.token.partition(".")[0] or not offset.isdecimal():
            return None
        return int(offset) if self.series.cut_at <= int(offset) <= self._tail.position.offset else None


class RunReadings:
    """Readings of the most recently requested runs. Thread-safe."""

    def __init__(self, n_kept: int = RUNS_KEPT) -> None:
        """Keep the last ``n_kept`` readings."""
        self._readings: OrderedDict[Path, RunReading] = OrderedDict()
        self._n_kept = n_kept
        self._lock = threading.Lock()

    def of(self, run_dir: Path) -> RunReading:
        """Return the reading of a run, with the events of the last refresh."""
        with self._lock:
            reading = self._readings.pop(run_dir, None) or RunReading(run_dir)
            self._readings[run_dir] = reading
            while len(self._readings) > self._n_kept:
                self._readings.popitem(last=False)
            return reading
