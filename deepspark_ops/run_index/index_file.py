"""A run's index file: written when the run ends, read instead of its events for as long as they stay the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from caffe_import.files.regular_file import regular_bytes
from deepspark_ops.run_index.summary import RunSummary, stamps, summarize
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.reading import RunReading, RunReadings

BUDGET_S: Final = 0.5
"""How long one list may read the events of runs without an index; the others wait for the next one."""


def read_index(run_dir: Path) -> RunSummary | None:
    """Return a run's index; None if there is none, it is damaged or of another version, or the run has gone on."""
    try:
        found = RunSummary.model_validate_json(regular_bytes(RunPaths(run_dir).index))
    except (OSError, ValidationError):
        return None
    return found if found.made_of == stamps(run_dir) else None


def write_index(run_dir: Path, reading: RunReading | None = None) -> RunSummary:
    """Read a run and write its index, if its folder can be written.

    Raises:
        OSError: The events are there and cannot be read.
    """
    summary = summarize(reading or RunReading(run_dir), run_dir)
    with suppress(OSError):
        write_text_whole(RunPaths(run_dir).index, summary.model_dump_json() + "\n")
    return summary


class SummaryReader:
    """Summaries for one list after another. Thread-safe, each list with a reader of its own from ``begin``."""

    def __init__(self, *, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.monotonic) -> None:
        """Give each list ``budget_s`` for runs without an index."""
        self._budget_s = budget_s
        self._clock = clock
        self._readings = RunReadings()

    def begin(self) -> Callable[[Path, bool], RunSummary | None]:
        """Return the function that reads runs for one list.

        Returns:
            Takes a run's folder and whether the run is over: then its index is written. Returns None for a run that
            there was no time for.
        """
        until = self._clock() + self._budget_s

        def read(run_dir: Path, is_over: bool) -> RunSummary | None:
            if (known := read_index(run_dir)) is not None:
                return known
            if self._clock() >= until:
                return None
            with suppress(OSError):
                return write_index(run_dir) if is_over else summarize(self._readings.of(run_dir), run_dir)
            return RunSummary(made_of={})

        return read
