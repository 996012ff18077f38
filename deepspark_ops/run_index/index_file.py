"""A run's index file: written at the end of the run, and read instead of the events until the events change."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.run_index.summary import RunSummary, stamps, summarize
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.reading import RunReading, RunReadings

BUDGET_S: Final = 0.5
"""Time limit of a list for reading events of runs without an index; further runs wait for the next list."""

_INDEX: Final = str(RunPaths(Path()).index)
SUMMARIES_KEPT: Final = 50_000
"""Summaries in memory, about 3 KiB each with the curve."""


def read_index(run_dir: Path | str) -> RunSummary | None:
    """Return a run's index; None if the index is missing, damaged, of another version, or older than the run.

    A text is read in half the time of a ``Path``: a list has 10,000.
    """
    try:
        summary = RunSummary.model_validate_json(regular_bytes(f"{run_dir}/{_INDEX}"))
    except (OSError, ValidationError):
        return None
    return summary if summary.made_of == stamps(run_dir) else None


def write_index(run_dir: Path, reading: RunReading | None = None) -> RunSummary:
    """Read a run and write the run's index, if the folder can be written.

    Raises:
        OSError: The events exist and cannot be read.
    """
    summary = summarize(reading or RunReading(run_dir), run_dir)
    with suppress(OSError):
        write_text_whole(RunPaths(run_dir).index, summary.model_dump_json() + "\n")
    return summary


class SummaryReader:
    """Summaries for lists in turn. Thread-safe; ``begin`` returns a separate reader for each list.

    Summaries stay in memory for as long as the stamps of their source files stay the same.
    """

    def __init__(self, *, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.monotonic) -> None:
        """Give each list ``budget_s`` for runs without an index."""
        self._summaries: dict[str, RunSummary] = {}
        self._budget_s = budget_s
        self._clock = clock
        self._readings = RunReadings()

    def begin(self) -> Callable[[str, bool], RunSummary | None]:
        """Return a function to read runs for a list.

        Returns:
            Function of a run's folder and whether the run is over; the index of a finished run is written. The
            function returns None after the time limit.
        """
        until = self._clock() + self._budget_s

        def read(path: str, is_over: bool) -> RunSummary | None:
            summary = self._summaries.get(path)
            if summary is not None and summary.made_of == stamps(path):
                return summary
            if (summary := read_index(path)) is not None:
                self._keep(path, summary)
                return summary
            if self._clock() >= until:
                return None
            run_dir = Path(path)
            with suppress(OSError):
                return write_index(run_dir) if is_over else summarize(self._readings.of(run_dir), run_dir)
            return RunSummary()

        return read

    def _keep(self, path: str, summary: RunSummary) -> None:
        if len(self._summaries) >= SUMMARIES_KEPT:
            self._summaries.clear()  # the next list fills it again, with the runs that exist
        self._summaries[path] = summary
